"""The unchanged client package against the real server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import httpx
import pytest
from openintent import OpenIntentClient


@pytest.fixture(scope="module")
def url(shared_server):
    return shared_server.url


@pytest.fixture
def connect(url):
    """Makes clients of the package: `connect("worker-1")`."""
    made = []

    def make(agent_id, api_key="key", base=None):
        client = OpenIntentClient(base_url=base or url, api_key=api_key, agent_id=agent_id)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def http(url):
    """Plain requests, for what the package cannot send."""
    with httpx.Client(base_url=url + "/api/v1", headers={"X-API-Key": "key", "X-Agent-ID": "raw"}, timeout=30) as client:
        yield client


@pytest.fixture
def intent(connect):
    return connect("maker").create_intent("an intent", "made by a test")
