"""A server with keys: whose key it is decides which agent one may be, and nothing works without one."""

import json
import subprocess

import httpx
import pytest
from openintent import OpenIntentClient
from openintent.exceptions import OpenIntentError
from tenure_process import Server, binary


def make_key(file, name, *options):
    command = [binary(), "key", "new", name, "--keys", str(file), "--json", *options]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(made.stdout)["data"]["key"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys = {name: make_key(file, name) for name in ("a", "b")}
    keys["boss"] = make_key(file, "boss", "--role", "admin")
    keys["eye"] = make_key(file, "eye", "--role", "observer")
    with Server("--keys", str(file)) as server:
        yield server, keys


@pytest.fixture
def as_agent(keyed):
    server, keys = keyed
    made = []

    def make(agent, key=None):
        client = OpenIntentClient(base_url=server.url, api_key=keys.get(key or agent, key or agent), agent_id=agent)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


def test_a_key_acts_as_its_own_agent_and_as_no_other(keyed, as_agent):
    a = as_agent("a")
    intent = a.create_intent("with keys")
    assert a.acquire_lease(intent.id, "x", 60).agent_id == "a"
    for wrong in (as_agent("a", "no such key"), as_agent("a", "b"), as_agent("stranger", "a")):
        with pytest.raises(OpenIntentError) as refused:
            wrong.acquire_lease(intent.id, "y", 60)
        assert refused.value.status_code in (401, 403)
    assert [lease.scope for lease in a.get_leases(intent.id)] == ["x"], "nothing was taken under a name that is not one's own"


def test_a_key_that_is_missing_or_unknown_is_401_as_json_and_never_shown(keyed):
    server, keys = keyed
    intents = server.url + "/api/v1/intents"
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "guess"}, {"X-API-Key": keys["a"] + "x"}):
        answer = httpx.get(intents, headers={"X-Agent-ID": "a", **headers})
        assert answer.status_code == 401 and answer.json()["message"]
        assert "guess" not in answer.text and keys["a"] not in answer.text
    assert httpx.get(intents, headers={"X-API-Key": keys["a"], "X-Agent-ID": "a"}).status_code == 200
    with httpx.stream("GET", server.url + "/api/v1/agents/a/subscribe", headers={"X-Agent-ID": "a"}) as stream:
        assert stream.status_code == 401


def test_an_observer_looks_and_changes_nothing(keyed, as_agent):
    server, keys = keyed
    intent = as_agent("a").create_intent("looked at")
    headers = {"X-API-Key": keys["eye"], "X-Agent-ID": "eye"}
    address = f"{server.url}/api/v1/intents/{intent.id}"
    assert httpx.get(address, headers=headers).status_code == 200
    refused = httpx.post(address + "/leases", headers=headers, json={"scope": "x", "duration_seconds": 60})
    assert refused.status_code == 403 and refused.json()["message"]


def test_only_an_administrator_revokes_and_the_holder_finds_its_lease_revoked(keyed, as_agent):
    server, keys = keyed
    a = as_agent("a")
    intent = a.create_intent("revoked")
    lease = a.acquire_lease(intent.id, "x", 60)
    address = f"{server.url}/api/v1/intents/{intent.id}/leases/{lease.id}/revoke"
    for name in ("a", "b"):
        refused = httpx.post(address, headers={"X-API-Key": keys[name], "X-Agent-ID": name}, json={"reason": "mine"})
        assert refused.status_code == 403 and refused.json()["message"]
    assert [one.id for one in a.get_leases(intent.id)] == [lease.id]
    done = httpx.post(address, headers={"X-API-Key": keys["boss"], "X-Agent-ID": "boss"}, json={"reason": "it hangs"})
    assert done.status_code == 200 and done.json()["status"] == "revoked"
    with pytest.raises(OpenIntentError) as lost:
        a.renew_lease(intent.id, lease.id, 60)
    assert lost.value.status_code == 409
    assert as_agent("b").acquire_lease(intent.id, "x", 60).agent_id == "b"
