"""Fixtures: the clients, and workers that end with the test."""

import pytest

from conductor_kit import Conductor, Workers


@pytest.fixture
def conductor(server):
    return Conductor(server.url)


@pytest.fixture
def workers(server):
    """Starts workers by the names of their functions; they end with the test."""
    running = []

    def start(*names, **environment):
        running.append(Workers(server.url, *names, **environment))
        return running[-1].process

    yield start
    for one in running:
        one.__exit__()
