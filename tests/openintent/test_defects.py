"""What the project's own server gets wrong, one test each, by the number in the list of its defects. Those that a row of the RFC
table covers are there: 3 (row 10), 4 (row 9), 7 (rows 23 to 28), 8 (rows 4 to 8), 9 and 20 (test_stream), 19 (row 12),
23 (rows 29 to 36), 24 (rows 20 to 22), 28 (test_stream). 27 needs a clock that the test moves: crates/tenure-server/tests."""

import concurrent.futures
import subprocess
import sys
import textwrap

import httpx
import pytest
from openintent.exceptions import LeaseConflictError, NotFoundError, OpenIntentError
from openintent.models import AccessPolicy, IntentStatus
from support import until
from tenure_process import Server, binary


def test_defect_01_one_winner_in_a_thousand_rounds_of_two_processes(url, connect):
    """Two processes of the package fight for one scope; whoever holds it writes its name, and finds it unchanged."""
    maker = connect("maker")
    intent = maker.create_intent("contended")
    program = textwrap.dedent(f"""
        from openintent import OpenIntentClient
        from openintent.exceptions import LeaseConflictError
        import sys
        me = sys.argv[1]
        client = OpenIntentClient({url!r}, "k", me)
        held = tried = 0
        while tried < 1000:
            tried += 1
            try:
                lease = client.acquire_lease({intent.id!r}, "x", 60)
            except LeaseConflictError:
                continue
            mine = [one.agent_id for one in client.get_leases({intent.id!r})]
            assert mine == [me], mine
            held += 1
            client.release_lease({intent.id!r}, lease.id)
        print(held)
    """)
    racers = [subprocess.Popen([sys.executable, "-c", program, f"racer-{at}"], stdout=subprocess.PIPE, text=True) for at in (1, 2)]
    held = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert all(racer.returncode == 0 for racer in racers) and sum(held) > 0
    grants = ends = 0
    page = httpx.get(url + "/v1/events", params={"resource": f"intent:{intent.id}/x", "limit": 1000}).json()
    for event in page["events"]:
        grants += event["kind"] == "lease.granted"
        ends += event["kind"] == "lease.released"
        assert 0 <= grants - ends <= 1, "two held it at once"


def test_defect_02_of_two_servers_on_one_empty_directory_one_serves_and_the_other_says_why(tmp_path):
    """Four rounds: started at the same moment, never a half-made store."""
    for round in range(4):
        data = tmp_path / str(round)
        command = [binary(), "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        until(lambda: any(one.poll() is not None for one in both), what="one of two gives way")  # noqa: B023
        (loser,) = [one for one in both if one.poll() is not None]
        (winner,) = [one for one in both if one is not loser]
        assert loser.returncode not in (0, None) and "in use" in loser.stderr.read().lower()
        ready = next(line for line in winner.stdout if "http://" in line)
        assert ready and winner.poll() is None
        winner.kill()
        winner.communicate()
        with Server(data=str(data)) as again:
            assert httpx.get(again.url + "/api/v1/intents", headers={"X-Agent-ID": "a"}).status_code == 200


def test_defect_05_a_lease_ends_once_and_its_end_is_never_rewritten(connect, http, intent):
    a = connect("a")
    lease = a.acquire_lease(intent.id, "x", 60)
    delete = lambda: http.delete(f"/intents/{intent.id}/leases/{lease.id}", headers={"X-Agent-ID": "a"})  # noqa: E731
    first, second = delete(), delete()
    assert first.status_code == second.status_code == 200
    assert first.json()["status"] == second.json()["status"] == "released"
    ended = http.get(f"/leases/{lease.id}").json()["released_at"]
    assert second.json()["released_at"] == ended
    gone = a.acquire_lease(intent.id, "y", 1)
    until(lambda: not a.get_leases(intent.id), what="the expiry")
    over = http.delete(f"/intents/{intent.id}/leases/{gone.id}", headers={"X-Agent-ID": "a"})
    assert over.status_code == 200 and over.json()["status"] == "expired"


def test_defect_06_a_lease_is_found_only_under_its_own_intent(connect, http, intent):
    a = connect("a")
    other = a.create_intent("other")
    lease = a.acquire_lease(intent.id, "x", 60)
    for wrong in (other.id, "intent-9-9"):
        with pytest.raises(NotFoundError):
            a.renew_lease(wrong, lease.id, 60)
        with pytest.raises(NotFoundError):
            a.release_lease(wrong, lease.id)
    assert len(a.get_events(other.id)) == 1
    assert [one.id for one in a.get_leases(intent.id)] == [lease.id]


@pytest.mark.parametrize("number", [10, 12, 13])
def test_defect_10_12_13_bad_input_is_400_with_message_and_errors_and_writes_nothing(http, intent, number):
    durations = {10: [-5, 0, 10**9, "60", True], 12: [10**12, 10**18, 10**30], 13: [1.5, None, [], {}]}[number]
    scopes = {10: ["", "  sp", "sp  ", "a\0b", "x" * 10_000], 12: [], 13: [None, 5, []]}[number]
    bodies = [{"scope": "x", "duration_seconds": value} for value in durations] + [{"scope": value} for value in scopes] + [{}]
    for body in bodies:
        answer = http.post(f"/intents/{intent.id}/leases", json=body)
        assert answer.status_code == 400, (body if len(str(body)) < 99 else "long", answer.text[:200])
        assert answer.json()["message"] and answer.json()["errors"]
    for raw in (b"{", b'{"scope": "\\ud800"}', b"[]", b"\xff", b"null"):
        answer = http.post(f"/intents/{intent.id}/leases", content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400 and answer.json()["message"], raw
    assert http.get(f"/intents/{intent.id}/leases").json() == {"leases": []}
    assert len(http.get(f"/intents/{intent.id}/events").json()["events"]) == 1


def test_defect_10_composed_and_decomposed_texts_are_one_scope_and_finished_intents_take_none(connect, intent):
    a, b = connect("a"), connect("b")
    a.acquire_lease(intent.id, "caf\u00e9", 60)
    with pytest.raises(LeaseConflictError):
        b.acquire_lease(intent.id, "cafe\u0301", 60)
    a.set_status(intent.id, 1, IntentStatus.COMPLETED)
    with pytest.raises(OpenIntentError) as refused:
        a.acquire_lease(intent.id, "other", 60)
    assert refused.value.status_code == 409


def test_defect_11_ttl_seconds_is_honoured_and_unknown_fields_are_refused(http, intent):
    lease = http.post(f"/intents/{intent.id}/leases", json={"scope": "x", "ttl_seconds": 7}).json()
    assert lease["duration_seconds"] == 7
    assert http.post(f"/intents/{intent.id}/leases", json={"scope": "y", "ttl": 7}).status_code == 400
    both = {"scope": "y", "ttl_seconds": 7, "duration_seconds": 8}
    assert http.post(f"/intents/{intent.id}/leases", json=both).status_code == 400


def test_defect_14_the_connection_is_usable_after_an_error(http, intent):
    for _ in range(5):
        assert http.post(f"/intents/{intent.id}/leases", json={"scope": "x", "duration_seconds": 10**18}).status_code == 400
        assert http.get(f"/intents/{intent.id}").status_code == 200


def test_defect_15_16_the_holder_is_the_agent_and_no_key_is_ever_shown(connect, http, intent):
    secret = "very-secret-key"
    a, b = connect("a", secret), connect("b", secret)
    lease = a.acquire_lease(intent.id, "x", 60)
    assert lease.agent_id == "a"
    with pytest.raises(OpenIntentError):
        b.renew_lease(intent.id, lease.id, 60)
    with pytest.raises(OpenIntentError):
        b.release_lease(intent.id, lease.id)
    a.register_agent("a-keyed")
    for path in (f"/intents/{intent.id}/leases", f"/intents/{intent.id}/events", f"/intents/{intent.id}", "/agents", "/agents/a-keyed/record"):
        assert secret not in http.get(path).text


def test_defect_17_events_about_leases_cannot_be_forged(http, intent):
    for name in ("lease_acquired", "lease_released"):
        assert http.post(f"/intents/{intent.id}/events", json={"event_type": name, "actor": "x", "payload": {}}).status_code == 400
    assert http.post(f"/intents/{intent.id}/events", json={"event_type": "lease_renewed"}).status_code == 400


def test_defect_18_access_lists_are_enforced_and_strangers_do_not_change_them(connect, intent):
    maker, stranger = connect("maker"), connect("stranger")
    with pytest.raises(OpenIntentError) as refused:
        stranger.set_acl(intent.id, AccessPolicy.CLOSED)
    assert refused.value.status_code == 403
    maker.set_acl(intent.id, AccessPolicy.CLOSED)
    calls = [
        lambda: stranger.get_intent(intent.id),
        lambda: stranger.acquire_lease(intent.id, "x", 60),
        lambda: stranger.update_state(intent.id, 1, {"x": 1}),
        lambda: stranger.get_events(intent.id),
    ]
    for call in calls:
        with pytest.raises(OpenIntentError) as refused:
            call()
        assert refused.value.status_code == 403
    assert intent.id not in [one.id for one in stranger.list_intents(limit=1000)]


def test_defect_21_many_parallel_acquires_all_succeed(connect):
    clients = [connect(f"many-{at}") for at in range(16)]
    intent = clients[0].create_intent("many")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        leases = list(pool.map(lambda at: clients[at % 16].acquire_lease(intent.id, f"scope-{at}", 60), range(320)))
    assert len({lease.id for lease in leases}) == 320


def test_defect_22_the_status_is_right_in_every_time_zone(url, intent):
    for zone in ("Asia/Tokyo", "America/New_York", "UTC"):
        program = (
            "from openintent import OpenIntentClient; import sys;"
            f"c = OpenIntentClient({url!r}, 'k', 'tz-{zone}');"
            f"print(c.acquire_lease({intent.id!r}, {zone!r}, 60).status.value)"
        )
        done = subprocess.run([sys.executable, "-c", program], env={"TZ": zone, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert done.stdout.strip() == "active", done.stderr


def test_defect_25_the_holder_of_everything_gets_a_scope_within_it_and_a_second_lease_names_the_first(connect, intent):
    a = connect("a")
    whole = a.acquire_lease(intent.id, "*", 60)
    part = a.acquire_lease(intent.id, "processing", 60)
    with pytest.raises(LeaseConflictError) as again:
        a.acquire_lease(intent.id, "processing", 60)
    assert again.value.existing_lease["id"] == part.id
    a.release_lease(intent.id, whole.id)
    assert a.get_leases(intent.id) == [], "what lives within a lease ends with it"


def test_defect_26_a_lease_and_its_event_are_there_together_after_a_crash(server):
    client = httpx.Client(base_url=server.url + "/api/v1", headers={"X-Agent-ID": "a"})
    intent = client.post("/intents", json={"title": "t"}).json()["id"]
    lease = client.post(f"/intents/{intent}/leases", json={"scope": "x", "duration_seconds": 600}).json()["id"]
    server.kill()
    server.start()
    client = httpx.Client(base_url=server.url + "/api/v1", headers={"X-Agent-ID": "a"})
    assert [one["id"] for one in client.get(f"/intents/{intent}/leases").json()["leases"]] == [lease]
    types = [event["event_type"] for event in client.get(f"/intents/{intent}/events").json()["events"]]
    assert types == ["lease_acquired", "intent_created"]


def test_routes_by_lease_id_alone_and_waiting_in_line(connect, http, intent):
    a = connect("a")
    lease = a.acquire_lease(intent.id, "x", 60)
    as_a = {"X-Agent-ID": "a"}
    assert http.patch(f"/leases/{lease.id}", json={"ttl_seconds": 90}, headers=as_a).json()["duration_seconds"] == 90
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"scope": "x", "wait_seconds": 20}
        waiting = pool.submit(http.post, f"/intents/{intent.id}/leases", json=body, headers={"X-Agent-ID": "b"})
        native = str(http.base_url).split("/api")[0] + "/v1/leases/check"
        ask = lambda: httpx.post(native, json={"resources": [f"intent:{intent.id}/x"]}).json()  # noqa: E731
        until(lambda: any(one.get("waiting") for one in ask()["conflicts"]), what="the wait")
        assert http.delete(f"/leases/{lease.id}", headers=as_a).status_code == 200
        assert waiting.result().json()["agent_id"] == "b"


def test_old_clients_send_a_list_of_constraints(http):
    for sent, kept in (([], {}), (["be kind"], {"rules": ["be kind"]}), ({}, {})):
        made = http.post("/intents", json={"title": "t", "constraints": sent})
        assert made.status_code == 201 and made.json()["constraints"] == kept


def test_what_is_not_served_says_so_as_json(http, intent):
    for method, path in (("POST", "/memory"), ("GET", "/triggers"), ("POST", f"/intents/{intent.id}/attachments"), ("GET", "/federation/status"),
                         ("POST", "/tasks"), ("GET", "/plans/p"), ("GET", f"/intents/{intent.id}/costs"), ("POST", "/vaults")):
        answer = http.request(method, path)
        assert answer.status_code == 501 and answer.json()["message"], (method, path)
    assert http.get("/banana").json()["message"]
    assert http.put(f"/intents/{intent.id}/leases").status_code == 405
