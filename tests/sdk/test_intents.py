"""The calls of the OpenIntent SDK: forms, versions, and what a refusal says."""

import asyncio
import threading
from datetime import timedelta

import pytest
import tenure
from tenure.exceptions import parse_time
from tenure_process import eventually


@pytest.fixture
def a(server):
    return tenure.OpenIntentClient(server.url, agent_id="a")


@pytest.fixture
def b(server):
    return tenure.OpenIntentClient(base_url=server.url, api_key="any", agent_id="b")


def test_renew_and_release_take_one_id_or_two(a, b):
    intent = a.create_intent("t")
    lease = a.acquire_lease(intent.id, scope="s", ttl_seconds=60)
    assert a.renew_lease(lease.id, ttl_seconds=90).expires_at > lease.expires_at
    assert a.renew_lease(intent.id, lease.id, ttl_seconds=90).id == lease.id
    with pytest.raises(TypeError, match="3 ids"):
        a.renew_lease("1", "2", "3")
    a.release_lease(intent.id, lease.id)
    assert a.get_leases(intent.id) == []
    again = b.acquire_lease(intent.id, "s", duration_seconds=60)
    b.release_lease(again.id)


def test_the_whole_intent_excludes_its_scopes_in_both_orders(a, b):
    intent = a.create_intent("t")
    whole = a.acquire_lease(intent.id, ttl_seconds=60)
    with pytest.raises(tenure.ConflictError) as refusal:
        b.acquire_lease(intent.id, scope="write", ttl_seconds=60)
    assert refusal.value.current_holder == "a" and refusal.value.expires_at is not None
    a.release_lease(whole.id)
    b.acquire_lease(intent.id, scope="write", ttl_seconds=60)
    with pytest.raises(tenure.ConflictError):
        a.acquire_lease(intent.id, ttl_seconds=60)


def test_a_stale_version_is_refused_with_the_current_one(a, b):
    intent = a.create_intent("t")
    b.patch_state(intent.id, {"x": 1})
    with pytest.raises(tenure.ConflictError) as refusal:
        a.patch_state(intent.id, {"x": 2}, expected_version=intent.version)
    assert refusal.value.current_version == intent.version + 1
    assert a.get_intent(intent.id).state == {"x": 1}


def test_a_part_that_somebody_else_has_leased_cannot_be_written(a, b):
    intent = a.create_intent("t")
    a.acquire_lease(intent.id, scope="draft", ttl_seconds=60)
    a.patch_state(intent.id, {"draft": "mine"})
    with pytest.raises(tenure.ConflictError) as refusal:
        b.patch_state(intent.id, {"draft": "yours"})
    assert refusal.value.current_holder == "a"
    b.patch_state(intent.id, {"elsewhere": 1})


EXACT = [2**64 - 1, -(2**63), {"9" * 40: "9" * 40}, {'a"\\': ["\\", '"99999999999999999999', 1e22, True, None]}]


@pytest.mark.parametrize("value", EXACT)
def test_numbers_of_64_bits_and_texts_are_read_as_they_were_written(a, value):
    intent = a.create_intent("t", initial_state={"x": value})
    assert a.get_intent(intent.id).state == {"x": value}
    assert a.patch_state(intent.id, {"y": value}).state["y"] == value


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 2**70 + 1])
@pytest.mark.parametrize("around", [lambda n: n, lambda n: [1, {"a": n}], lambda n: {'"': "\\", "\\": n}])
def test_a_number_that_would_not_be_kept_exactly_is_refused_by_name(a, number, around):
    intent = a.create_intent("t", initial_state={"x": 1})
    with pytest.raises(ValueError, match=f"^{number} does not fit into 64 bits .*: give it as a text"):
        a.patch_state(intent.id, {"x": around(number)})
    assert a.get_intent(intent.id).state == {"x": 1}


def test_many_writers_lose_no_update(server):
    intent = tenure.OpenIntentClient(server.url, agent_id="w").create_intent("t", initial_state={"n": 0})

    def count(name):
        client = tenure.OpenIntentClient(server.url, agent_id=name)
        for _ in range(5):
            client.update_state_with(intent.id, lambda now: {"n": now.state["n"] + 1})

    threads = [threading.Thread(target=count, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tenure.OpenIntentClient(server.url, agent_id="w").get_intent(intent.id).state["n"] == 20


def test_an_expired_lease_is_lost_and_its_scope_free(a, b):
    intent = a.create_intent("t")
    lease = a.acquire_lease(intent.id, scope="s", ttl_seconds=1)
    eventually(lambda: not a.get_leases(intent.id))
    b.acquire_lease(intent.id, scope="s", ttl_seconds=60)
    with pytest.raises(tenure.TenureError):
        a.renew_lease(lease.id, ttl_seconds=60)
    assert not lease.is_active


def test_what_does_not_exist_and_what_is_wrong_have_their_own_errors(a):
    with pytest.raises(tenure.NotFoundError):
        a.get_intent("018f0000-0000-7000-8000-000000000000")
    intent = a.create_intent("t")
    with pytest.raises(TypeError, match="one of both"):
        a.acquire_coordinator_lease()


def test_a_ttl_between_two_seconds_is_rounded_up(a):
    intent, portfolio = a.create_intent("t"), a.create_portfolio("p")
    lasts = lambda lease: lease.expires_at - lease.created_at
    lease = a.acquire_lease(intent.id, "s", ttl_seconds=60.0)
    assert lasts(lease) == timedelta(seconds=60)
    assert lasts(a.acquire_lease(intent.id, "r", duration_seconds=0.2)) == timedelta(seconds=1)
    longer = a.renew_lease(lease.id, ttl_seconds=90.5)
    assert longer.expires_at - lease.created_at >= timedelta(seconds=91)
    term = a.acquire_coordinator_lease(portfolio_id=portfolio.id, ttl_seconds=599.5)
    assert term.expires_at - parse_time(term.data["granted_at"]) == timedelta(seconds=600)


@pytest.mark.parametrize("ttl", [0, -5, -0.5, 1e12])
def test_a_ttl_that_is_too_short_or_too_long_is_refused_with_what_it_may_be(a, ttl):
    intent = a.create_intent("t")
    for call in (a.acquire_lease, lambda _, ttl_seconds: a.acquire_coordinator_lease(None, intent.id, ttl_seconds)):
        with pytest.raises(tenure.ValidationError, match="a whole number from 1 to"):
            call(intent.id, ttl_seconds=ttl)


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), "60"])
def test_a_ttl_that_is_no_number_of_seconds_is_named(a, ttl):
    with pytest.raises(ValueError, match=f"ttl_seconds must be a number of seconds, not {ttl!r}"):
        a.acquire_lease("any", ttl_seconds=ttl)
    with pytest.raises(ValueError, match=f"duration_seconds must be a number of seconds, not {ttl!r}"):
        a.renew_lease("any", duration_seconds=ttl)
    with pytest.raises(ValueError, match=f"ttl_seconds must be a number of seconds, not {ttl!r}"):
        a.acquire_coordinator_lease("any", ttl_seconds=ttl)


def test_an_agent_registers_beats_and_leaves(a):
    record = a.register_agent(capabilities=["write"], metadata={"team": "docs"})
    assert (record.agent_id, record.capabilities) == ("a", ["write"])
    assert a.agent_heartbeat()["agent_status"] == "active"
    assert [one.agent_id for one in a.list_agents(status="active")] == ["a"]
    a.update_agent_status("a", "draining")
    assert a.get_agent_record("a").status == "draining"
    with pytest.raises(tenure.NotFoundError):
        a.get_agent_record("nobody")


def test_the_calls_are_the_same_for_asyncio(server, b):
    async def work():
        async with tenure.AsyncOpenIntentClient(server.url, agent_id="a") as a:
            intent = await a.create_intent("t", initial_state={"n": 0})
            lease = await a.acquire_lease(intent.id, scope="s", ttl_seconds=60)
            with pytest.raises(tenure.ConflictError) as refusal:
                await tenure.AsyncOpenIntentClient(server.url, agent_id="b").acquire_lease(intent.id, ttl_seconds=60)
            assert refusal.value.current_holder == "a"
            await a.renew_lease(lease.id, ttl_seconds=90)
            more = lambda now: {"n": now.state["n"] + 1}
            await asyncio.gather(*(a.update_state_with(intent.id, more) for _ in range(5)))
            await a.release_lease(intent.id, lease.id)
            assert await a.get_leases(intent.id) == []
            return (await a.get_intent(intent.id)).state

    assert asyncio.run(work()) == {"n": 5}


def test_both_clients_have_the_same_calls():
    calls = lambda cls: {name for name in vars(cls) if not name.startswith("_")}
    assert calls(tenure.OpenIntentClient) == calls(tenure.AsyncOpenIntentClient)
    assert calls(tenure.Client) == calls(tenure.AsyncClient)


def test_a_call_that_is_sent_once_does_not_use_a_connection_that_was_closed_meanwhile(server, a):
    for number in range(3):
        a.create_intent(f"number {number}")
        server.kill()
        server.start(server.address)
    assert len(a.list_intents()) == 3
