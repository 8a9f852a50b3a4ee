"""The rows of the RFC table, one test each, named after the row."""

import concurrent.futures
import datetime
import http.server
import json
import threading

import pytest
from openintent.exceptions import ConflictError, LeaseConflictError, NotFoundError, OpenIntentError, ValidationError
from openintent.models import IntentStatus, LeaseStatus

from support import Stream, until


def test_row_01_one_active_lease_per_scope(connect):
    clients = [connect(f"racer-{at}") for at in range(8)]

    def attempt(client):
        try:
            return client.acquire_lease(intent.id, "x", 60)
        except LeaseConflictError:
            return None

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(25):
            intent = clients[0].create_intent("race")
            assert sum(lease is not None for lease in pool.map(attempt, clients)) == 1


def test_row_02_mandatory_expiration(http, intent):
    lease = http.post(f"/intents/{intent.id}/leases", json={"scope": "x"}).json()
    span = datetime.datetime.fromisoformat(lease["expires_at"]) - datetime.datetime.fromisoformat(lease["acquired_at"])
    assert span.total_seconds() == 300
    for duration in (0, -1, 10**9, 30 * 24 * 3600 + 1):
        assert http.post(f"/intents/{intent.id}/leases", json={"scope": "y", "duration_seconds": duration}).status_code == 400


def test_row_03_agent_can_release_early(connect, intent):
    a, b = connect("a"), connect("b")
    lease = a.acquire_lease(intent.id, "x", 600)
    a.release_lease(intent.id, lease.id)
    assert b.acquire_lease(intent.id, "x", 60).agent_id == "b"


def test_row_04_expired_leases_go_to_status_expired_by_themselves(url, connect, http, intent):
    stream = Stream(url, f"/intents/{intent.id}/subscribe")
    lease = connect("a").acquire_lease(intent.id, "x", 1)
    assert stream.wait("LEASE_RELEASED")[0][2]["status"] == "expired"
    assert http.get(f"/leases/{lease.id}").json()["status"] == "expired"
    stream.close()


def test_row_05_admin_can_revoke(url, connect, http, intent):
    stream = Stream(url, f"/intents/{intent.id}/subscribe")
    lease = connect("a").acquire_lease(intent.id, "x", 600)
    assert http.post(f"/intents/{intent.id}/leases/{lease.id}/revoke", json={}).status_code == 400, "a reason is needed"
    revoked = http.post(f"/intents/{intent.id}/leases/{lease.id}/revoke", json={"reason": "governance"}).json()
    assert revoked["status"] == "revoked"
    assert stream.wait("LEASE_RELEASED")[0][2]["status"] == "revoked"
    assert connect("b").acquire_lease(intent.id, "x", 60)
    stream.close()


def test_row_06_state_patch_to_a_leased_scope_needs_the_lease(connect, intent):
    a, b = connect("a"), connect("b")
    lease = a.acquire_lease(intent.id, "research", 60)
    with pytest.raises(LeaseConflictError) as refused:
        b.update_state(intent.id, 1, {"research": 1})
    assert refused.value.existing_lease["id"] == lease.id
    with pytest.raises(LeaseConflictError):
        b.update_state(intent.id, 1, {"research/deep": 1})
    b.update_state(intent.id, 1, {"elsewhere": 1})
    a.update_state(intent.id, 2, {"research": 1})
    a.release_lease(intent.id, lease.id)
    b.update_state(intent.id, 3, {"research": 2})


def test_row_07_lease_object_has_status(connect, intent):
    assert connect("a").acquire_lease(intent.id, "x", 60).status == LeaseStatus.ACTIVE


def test_row_08_get_lists_active_leases_only(connect, intent):
    a = connect("a")
    gone = a.acquire_lease(intent.id, "x", 60)
    a.release_lease(intent.id, gone.id)
    kept = a.acquire_lease(intent.id, "y", 60)
    assert [lease.id for lease in a.get_leases(intent.id)] == [kept.id]
    with pytest.raises(NotFoundError):
        a.get_leases("intent-9-9")


def test_row_09_renew_only_for_the_holders_active_lease(connect, intent):
    a, b = connect("a"), connect("b")
    lease = a.acquire_lease(intent.id, "x", 1)
    with pytest.raises(OpenIntentError):
        b.renew_lease(intent.id, lease.id, 60)
    until(lambda: not a.get_leases(intent.id), what="the expiry")
    with pytest.raises(LeaseConflictError) as over:
        a.renew_lease(intent.id, lease.id, 60)
    assert over.value.existing_lease["status"] == "expired"


def test_row_10_star_is_the_whole_intent_in_both_orders(connect):
    a, b = connect("a"), connect("b")
    for first, second in (("*", "write"), ("write", "*")):
        intent = a.create_intent("star")
        a.acquire_lease(intent.id, first, 60)
        with pytest.raises(LeaseConflictError):
            b.acquire_lease(intent.id, second, 60)


def test_row_11_mutations_need_if_match(http, intent):
    for path, body in (("state", {"patches": []}), ("status", {"status": "active"}), ("dependencies", {"dependency_id": intent.id})):
        answer = http.post(f"/intents/{intent.id}/{path}", json=body)
        assert answer.status_code == 400 and answer.json()["errors"][0]["field"] == "If-Match"
    assert http.post(f"/intents/{intent.id}/leases", json={"scope": "x"}).status_code == 201
    assert http.post(f"/intents/{intent.id}/events", json={"event_type": "comment"}).status_code == 201


def test_row_12_mismatch_is_409_and_one_of_two_writers_wins(connect):
    clients = [connect(f"writer-{at}") for at in range(4)]

    def write(client):
        try:
            client.update_state(intent.id, 1, {"by": client.agent_id})
            return True
        except ConflictError as conflict:
            assert conflict.current_version == 2
            return False

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(30):
            intent = clients[0].create_intent("race")
            assert sum(pool.map(write, clients)) == 1


def test_row_13_new_version_in_etag(http, intent):
    assert http.get(f"/intents/{intent.id}").headers["etag"] == '"1"'
    for sent, version in (("1", 2), ('"2"', 3), ("*", 4)):
        patches = {"patches": [{"op": "set", "path": "/a/b", "value": sent}]}
        answer = http.post(f"/intents/{intent.id}/state", json=patches, headers={"If-Match": sent})
        assert answer.headers["etag"] == f'"{version}"'


def test_row_14_status_machine(connect, http, intent):
    for bad in ("banana", "", None, 3):
        assert http.post(f"/intents/{intent.id}/status", json={"status": bad}, headers={"If-Match": "*"}).status_code == 400
    client = connect("maker")
    version = 1
    for status in (IntentStatus.ACTIVE, IntentStatus.BLOCKED, IntentStatus.SUSPENDED_AWAITING_INPUT, IntentStatus.ACTIVE):
        version = client.set_status(intent.id, version, status).version
    with pytest.raises(ConflictError):
        client.set_status(intent.id, version, IntentStatus.DRAFT)
    client.set_status(intent.id, version, IntentStatus.COMPLETED)
    with pytest.raises(ConflictError) as refused:
        client.set_status(intent.id, version + 1, IntentStatus.ACTIVE)
    assert not isinstance(refused.value, LeaseConflictError)


class Receiver:
    """A webhook that refuses the first `refuse` deliveries."""

    def __init__(self, refuse=0):
        received, refused = [], [refuse]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if refused[0] > 0:
                    refused[0] -= 1
                    self.send_response(503)
                else:
                    received.append(body)
                    self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.received = received
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


def test_row_15_subscriptions_are_made_listed_and_deleted(connect, intent, http):
    a = connect("a")
    made = a.subscribe(intent_id=intent.id, event_types=["comment"])
    assert [one.id for one in a.get_subscriptions(intent_id=intent.id)] == [made.id]
    with pytest.raises(OpenIntentError):
        connect("b").unsubscribe(made.id)
    a.unsubscribe(made.id)
    with pytest.raises(NotFoundError):
        a.unsubscribe(made.id)
    for bad in ({}, {"intent_id": intent.id, "webhook_url": "file:///x"}, {"intent_id": intent.id, "event_types": ["banana"]}):
        assert http.post("/subscriptions", json=bad).status_code == 400


def test_row_16_webhooks_are_stored_retried_with_backoff_and_survive_a_restart(server):
    import httpx

    receiver = Receiver(refuse=2)
    headers = {"X-Agent-ID": "a", "X-API-Key": "k"}
    api = httpx.Client(base_url=server.url + "/api/v1", headers=headers)
    intent = api.post("/intents", json={"title": "t"}).json()["id"]
    made = api.post("/subscriptions", json={"intent_id": intent, "webhook_url": receiver.url, "event_types": ["comment"]})
    assert made.status_code == 201, made.text
    for text in ("one", "two"):
        api.post(f"/intents/{intent}/events", json={"event_type": "comment", "payload": {"text": text}})
    until(lambda: [event["payload"]["text"] for event in receiver.received] == ["one", "two"], 20, "deliveries in order")
    server.kill()
    server.start()
    api = httpx.Client(base_url=server.url + "/api/v1", headers=headers)
    api.post(f"/intents/{intent}/events", json={"event_type": "comment", "payload": {"text": "three"}})
    until(lambda: "three" in [event["payload"]["text"] for event in receiver.received], 20, "a delivery after a restart")
    receiver.server.shutdown()


def test_row_17_lease_acquired_and_released_are_subscribable(connect, intent):
    receiver = Receiver()
    a = connect("a")
    a.subscribe(intent_id=intent.id, event_types=["lease_acquired", "lease_released"], webhook_url=receiver.url)
    lease = a.acquire_lease(intent.id, "x", 60)
    a.release_lease(intent.id, lease.id)
    a.acquire_lease(intent.id, "x", 1)
    until(lambda: len(receiver.received) == 4, 15, "acquire, release, acquire, expiry")
    kinds = [(event["event_type"], event["payload"]["status"]) for event in receiver.received]
    assert kinds == [("lease_acquired", "active"), ("lease_released", "released"), ("lease_acquired", "active"), ("lease_released", "expired")]
    receiver.server.shutdown()


def test_row_18_portfolio_subscription_carries_member_events(connect, intent):
    receiver = Receiver()
    a = connect("a")
    portfolio = a.create_portfolio("p")
    a.add_intent_to_portfolio(portfolio.id, intent.id)
    a.subscribe(portfolio_id=portfolio.id, event_types=["state_patched"], webhook_url=receiver.url)
    a.update_state(intent.id, 1, {"k": 1})
    until(lambda: receiver.received, what="the member's event")
    assert receiver.received[0]["intent_id"] == intent.id and receiver.received[0]["payload"]["patches"]
    receiver.server.shutdown()


def test_row_19_portfolio_has_aggregate_status(connect, intent):
    a = connect("a")
    portfolio = a.create_portfolio("p")
    a.add_intent_to_portfolio(portfolio.id, intent.id)
    a.set_status(intent.id, 1, IntentStatus.COMPLETED)
    aggregate = a.get_portfolio(portfolio.id).aggregate_status
    assert (aggregate.total, aggregate.by_status, aggregate.completion_percentage) == (1, {"completed": 1}, 100)


def test_row_20_retry_policy_keeps_fallback_and_threshold(connect, intent):
    a = connect("a")
    a.set_retry_policy(intent.id, fallback_agent_id="f", failure_threshold=7)
    policy = a.get_retry_policy(intent.id)
    assert (policy.fallback_agent_id, policy.failure_threshold) == ("f", 7)


def test_row_21_failure_record_with_error_code(connect, intent):
    a = connect("a")
    failure = a.record_failure(intent.id, 2, "E_TIMEOUT", "too slow", metadata={"k": 1})
    assert (failure.error_code, failure.attempt_number, failure.metadata) == ("E_TIMEOUT", 2, {"k": 1})


def test_row_22_fallback_releases_assigns_and_tells_in_one_step(url, connect, intent):
    worker, maker = connect("w"), connect("maker")
    maker.assign_agent(intent.id, "w")
    maker.set_retry_policy(intent.id, fallback_agent_id="f", failure_threshold=1)
    stream = Stream(url, "/agents/f/subscribe", "f")
    worker.acquire_lease(intent.id, "x", 600)
    worker.record_failure(intent.id, 1, "E")
    assert stream.wait("AGENT_ASSIGNED")[0][2]["delegated_by"] == "w"
    assert maker.get_leases(intent.id) == []
    types = [(event.event_type, event.payload.get("fallback_triggered")) for event in maker.get_events(intent.id, limit=3)]
    assert types == [("agent_assigned", None), ("lease_released", None), ("failure_recorded", True)]
    stream.close()


def test_row_23_coordinator_lease_exclusive(connect, intent):
    a, b = connect("a"), connect("b")
    portfolio = a.create_portfolio("p")
    for target in ({"intent_id": intent.id}, {"portfolio_id": portfolio.id}):
        a.create_coordinator_lease("a", supervisor_id="boss", **target)
        with pytest.raises(LeaseConflictError) as held:
            b.create_coordinator_lease("b", supervisor_id="boss", **target)
        assert held.value.response["current_holder"] == "a"


def test_row_24_coordinator_lease_has_a_ttl_and_is_revocable(connect, intent, http):
    a, b = connect("a"), connect("b")
    a.create_coordinator_lease("a", intent.id, supervisor_id="boss", ttl_seconds=1)

    def taken():
        try:
            return b.create_coordinator_lease("b", intent.id, supervisor_id="boss", ttl_seconds=60)
        except LeaseConflictError:
            return None

    second = until(taken, what="the end of the first term")
    assert http.post(f"/coordinators/{second.id}/revoke", headers={"X-Agent-ID": "boss"}).json()["status"] == "completed"
    assert a.create_coordinator_lease("a", intent.id, supervisor_id="boss")


def test_row_25_supervisor_id_required(connect, intent):
    with pytest.raises(ValidationError):
        connect("a").create_coordinator_lease("a", intent.id)


def test_row_26_missed_heartbeats_make_unresponsive_then_failed_over(connect, intent):
    a = connect("a")
    lease = a.create_coordinator_lease("a", intent.id, supervisor_id="boss", heartbeat_interval_seconds=1)
    until(lambda: a.get_coordinator_lease(lease.id).status == "unresponsive", what="two missed beats")
    until(lambda: a.get_coordinator_lease(lease.id).status == "failed_over", what="the grace")
    assert connect("b").create_coordinator_lease("b", intent.id, supervisor_id="boss")


def test_row_27_handoff_pause_resume_replace_guardrails(connect, intent, http):
    lease = connect("a").create_coordinator_lease("a", intent.id, supervisor_id="boss")
    as_boss = {"X-Agent-ID": "boss"}
    act = lambda id, name, body=None, who=as_boss: http.post(f"/coordinators/{id}/{name}", json=body or {}, headers=who)  # noqa: E731
    assert act(lease.id, "pause").json()["status"] == "paused"
    assert act(lease.id, "resume").json()["status"] == "active"
    assert act(lease.id, "guardrails", {"guardrails": {"max": 1}}).json()["guardrails"] == {"max": 1}
    handed = act(lease.id, "handoff", {"agent_id": "b"}, {"X-Agent-ID": "a"}).json()
    assert (handed["agent_id"], handed["status"]) == ("b", "active")
    assert act(handed["id"], "replace", {"agent_id": "c"}).json()["agent_id"] == "c"
    assert act(lease.id, "pause").status_code == 409
    assert act(handed["id"], "pause", None, {"X-Agent-ID": "stranger"}).status_code == 403


def test_row_28_coordinator_events(connect, intent, http):
    a = connect("a")
    lease = a.create_coordinator_lease("a", intent.id, supervisor_id="boss")
    http.post(f"/coordinators/{lease.id}/pause", headers={"X-Agent-ID": "boss"})
    assert "coordinator.paused" in [event.event_type for event in a.get_events(intent.id)]


def test_row_29_register_on_both_paths_with_etag(http):
    for path, name in (("/agents", "r1"), ("/agents/register", "r2")):
        answer = http.post(path, json={"agent_id": name})
        assert answer.status_code == 201 and answer.headers["etag"] == '"1"'


def test_row_30_dead_agents_register_again_and_live_ones_do_not(connect):
    a = connect("a")
    a.register_agent("release-bot")
    with pytest.raises(ConflictError) as alive:
        a.register_agent("release-bot")
    assert not isinstance(alive.value, LeaseConflictError)
    a.update_agent_status("release-bot", "dead")
    assert a.register_agent("release-bot").status == "active"


def test_row_31_heartbeat_config_is_validated(http):
    for config in ({"interval_seconds": 0}, {"interval_seconds": -5}, {"interval_seconds": "x"}, {"dead_after_seconds": 1},
                   {"interval_seconds": 10, "unhealthy_after_seconds": 5}, {"banana": 1}):
        answer = http.post("/agents/register", json={"agent_id": "cfg", "heartbeat_config": config})
        assert answer.status_code == 400 and answer.json()["errors"], config


def test_row_32_heartbeat_answer_has_both_sets_of_keys(connect):
    a = connect("a")
    a.register_agent("beats")
    assert {"acknowledged", "agent_status", "pending_commands", "status", "server_timestamp", "next_heartbeat_at"} <= set(a.agent_heartbeat("beats"))


SHORT = {"interval_seconds": 1, "unhealthy_after_seconds": 1, "dead_after_seconds": 2}


def test_row_33_34_35_silence_makes_unhealthy_then_dead_with_410_and_the_leases_end(url, connect, intent):
    a = connect("mortal")
    a.register_agent("mortal", heartbeat_config=SHORT)
    a.acquire_lease(intent.id, "x", 600)
    seen = set()
    until(lambda: seen.add(a.get_agent_record("mortal").status) or "dead" in seen, what="death")
    assert "unhealthy" in seen
    with pytest.raises(OpenIntentError) as gone:
        a.agent_heartbeat("mortal")
    assert gone.value.status_code == 410
    assert a.get_leases(intent.id) == []
    assert connect("heir").acquire_lease(intent.id, "x", 60)


def test_row_36_draining_agent_gets_no_new_lease(connect, intent):
    a = connect("drainer")
    a.register_agent("drainer")
    a.update_agent_status("drainer", "draining")
    with pytest.raises(OpenIntentError) as refused:
        a.acquire_lease(intent.id, "x", 60)
    assert refused.value.status_code == 403


def test_row_37_late_write_without_the_lease_is_412_but_not_after_its_own_release(connect, intent):
    a = connect("a")
    a.acquire_lease(intent.id, "x", 1)
    until(lambda: not a.get_leases(intent.id), what="the expiry")
    with pytest.raises(OpenIntentError) as late:
        a.update_state(intent.id, 1, {"x": 1})
    assert late.value.status_code == 412
    lease = a.acquire_lease(intent.id, "x", 60)
    a.release_lease(intent.id, lease.id)
    assert a.update_state(intent.id, 1, {"x": 1}).version == 2


def test_row_38_heartbeat_and_status_are_bound_to_the_agents_key(connect):
    connect("a", api_key="key-a").register_agent("bound")
    foreign = connect("a", api_key="key-b")
    for call in (lambda: foreign.agent_heartbeat("bound"), lambda: foreign.update_agent_status("bound", "dead")):
        with pytest.raises(OpenIntentError) as refused:
            call()
        assert refused.value.status_code == 403
    assert connect("a", api_key="key-a").agent_heartbeat("bound")


def test_row_39_one_event_per_transition(url, connect):
    import httpx

    a = connect("a")
    a.register_agent("moves")
    a.update_agent_status("moves", "draining")
    a.update_agent_status("moves", "deregistered")
    page = httpx.get(url + "/v1/events", params={"holder": "moves", "limit": 100}).json()
    assert [event["kind"] for event in page["events"]] == ["agent.registered", "agent.status_changed", "agent.status_changed"]
