"""What all folders of tests share."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from tenure_process import Server  # noqa: E402


@pytest.fixture
def server():
    """A fresh server for one test."""
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def shared_server():
    """One server for the tests of a module that do not get in each other's way."""
    with Server() as running:
        yield running
