"""Requests made up from the server's own description: whatever is sent, the answer is never a 5xx."""

import os

import hypothesis
import pytest
import schemathesis

from tenure_process import Server

EXAMPLES = 40 * int(os.environ.get("TENURE_ROUNDS", "1"))


@pytest.fixture(scope="module")
def described():
    with Server() as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described").exclude(path_regex="^/v1/events$")


@schema.parametrize()
@hypothesis.settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_no_request_made_from_the_description_is_answered_with_a_server_error(case):
    # Waits are cut short: a request that is told to wait a day would.
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), (int, float)):
        case.body["wait_seconds"] = min(case.body["wait_seconds"], 0.01)
    response = case.call()
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert "application/problem+json" in response.headers["content-type"], response.text
        assert response.json()["code"], response.text
