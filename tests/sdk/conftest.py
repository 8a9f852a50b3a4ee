"""Fixtures of the tests of the Python package, which `cargo xtask wheel` installs."""

import pytest
import tenure
from sdk_support import Wire


@pytest.fixture
def wire(server):
    """A server behind a network that can fail."""
    proxy = Wire(server.address)
    yield proxy
    proxy.close()


@pytest.fixture
def client(server):
    return tenure.Client(server.url, holder="a")


@pytest.fixture
def other(server):
    """Somebody else."""
    return tenure.Client(server.url, holder="b")
