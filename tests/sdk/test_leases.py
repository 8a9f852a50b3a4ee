"""The native API from Python: what a call gives, and what an error says."""

import asyncio
import datetime
import threading

import pytest
import tenure
from sdk_support import events
from tenure_process import eventually


def test_a_lease_is_held_inside_the_block_and_free_after_it(client, other):
    with client.acquire("path:src/a.rs", ttl=5) as lease:
        assert (lease.state, lease.lost, lease.holder) == ("held", False, "a")
        assert 0 < lease.trusted_for < 5
        assert not other.check("path:src").free
    assert lease.state == "released"
    assert other.check("path:src").free


def test_a_refusal_names_the_holder_the_expiry_and_the_token(client, other):
    with client.acquire("path:src/a.rs", ttl=5) as lease:
        with pytest.raises(tenure.LeaseConflictError) as refusal:
            other.acquire("path:src")
    error = refusal.value
    assert (error.current_holder, error.holder, error.token) == ("a", "a", lease.token)
    assert (error.resource, error.code, error.status_code) == ("path:src", "held", 409)
    assert datetime.timedelta(0) < error.expires_at - lease.info.acquired_at <= datetime.timedelta(seconds=5.1)
    assert 0 < error.retry_after <= 5
    assert "held by a" in str(error)
    assert isinstance(error, tenure.ConflictError) and isinstance(error, tenure.TenureError)


def test_several_resources_are_acquired_together_or_not_at_all(client, other):
    with client.acquire("x:2"):
        with pytest.raises(tenure.ConflictError):
            other.acquire("x:1", "x:2")
        assert client.check("x:1").free
    with other.acquire("x:1", "x:2") as both:
        assert both.resources == ("x:1", "x:2")


def test_shared_leases_overlap_and_keep_an_exclusive_one_out(client, other):
    with client.acquire("x:1", shared=True), other.acquire("x:1", shared=True):
        with pytest.raises(tenure.ConflictError):
            client.acquire("x:1")


def test_a_wait_is_granted_when_the_holder_releases(client, other):
    first = client.acquire("x:1")
    granted = []
    waiter = threading.Thread(target=lambda: granted.append(other.acquire("x:1", wait=20)))
    waiter.start()
    watcher = tenure.Client(client.url, holder="c")
    eventually(lambda: watcher.check("x:1").conflicts[0].waiting == 1, what="somebody waits")
    first.release()
    waiter.join(20)
    assert granted[0].token > first.token
    granted[0].release()


def test_a_wait_that_runs_out_says_who_still_has_it(client, other):
    with client.acquire("x:1"):
        with pytest.raises(tenure.WaitTimedOut) as refusal:
            other.acquire("x:1", wait=0.2)
    assert refusal.value.holder == "a"


def test_two_that_wait_for_each_other_are_told_so(client, other):
    first, second = client.acquire("x:1"), other.acquire("x:2")
    waiter = threading.Thread(target=lambda: client.acquire("x:2", wait=20).release())
    waiter.start()
    watcher = tenure.Client(client.url, holder="c")
    eventually(lambda: watcher.check("x:2").conflicts[0].waiting == 1, what="the first one waits")
    with pytest.raises(tenure.WouldDeadlock) as refusal:
        other.acquire("x:1", wait=20)
    assert set(refusal.value.cycle) == {"a", "b"}
    second.release()
    waiter.join(20)
    first.release()


def test_a_lease_lives_within_another_and_ends_with_it(client, other):
    parent = client.acquire("intent:i/*", ttl=5)
    child = client.acquire("intent:i/research", within=parent, ttl=5)
    assert child.info.within == parent.id
    parent.release()
    eventually(lambda: child.lost, what="the child is lost")
    with pytest.raises(tenure.LeaseLost):
        child.check()
    assert other.check("intent:i/research").free


def test_a_lost_lease_cannot_be_renewed_and_says_who_has_it_now(client, other):
    info = client.acquire_without_heartbeat("x:1", ttl=0.2)
    taken = other.acquire("x:1", wait=20)
    with pytest.raises(tenure.LeaseLost) as loss:
        client.renew(info.id)
    assert (loss.value.reason, loss.value.holder) == ("expired", "b")
    taken.release()


def test_bad_input_is_a_validation_error_that_names_the_field(client):
    with pytest.raises(tenure.ValidationError) as refusal:
        client.acquire("no kind")
    assert refusal.value.errors
    with pytest.raises(ValueError, match="ttl"):
        client.acquire("x:1", ttl=-1)
    with pytest.raises(ValueError, match="not the id of a lease"):
        client.renew("nonsense")


def test_an_unreachable_server_is_an_error_with_its_causes():
    client = tenure.Client("http://127.0.0.1:1", holder="a", patience=0)
    with pytest.raises(tenure.Unreachable) as failure:
        client.acquire("x:1")
    assert isinstance(failure.value, ConnectionError)
    chain, error = [], failure.value
    while error := error.__cause__:
        chain.append(str(error))
    assert any("refused" in cause.lower() for cause in chain), chain


def test_an_asyncio_block_holds_and_releases(server, other):
    async def work():
        client = tenure.AsyncClient(server.url, holder="a")
        async with client.acquire("x:1", ttl=5) as lease:
            assert lease.state == "held"
            assert not other.check("x:1").free
        again = await client.acquire("x:1")
        await again.release()
        return lease.state

    assert asyncio.run(work()) == "released"
    assert other.check("x:1").free


def test_a_lease_of_a_blocking_client_says_which_block_it_needs(client, other):
    async def use():
        lease = client.acquire("x:1")
        with pytest.raises(TypeError, match="used with 'with'"):
            async with lease:
                pass
        lease.release()

    asyncio.run(use())
    assert other.check("x:1").free


def test_a_cancelled_acquire_leaves_the_line(server, client):
    with client.acquire("x:1"):
        watcher = tenure.Client(client.url, holder="c")

        async def cancel_a_wait():
            waiter = asyncio.ensure_future(tenure.AsyncClient(server.url, holder="b").acquire("x:1", wait=60)._get())
            while not watcher.check("x:1").conflicts[0].waiting:
                await asyncio.sleep(0.01)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter

        asyncio.run(cancel_a_wait())
        eventually(lambda: watcher.check("x:1").conflicts[0].waiting == 0, what="the line is empty")
    assert not events(client, "lease.expired")


def test_listings_and_history_tell_what_happened(client):
    lease = client.acquire("x:1", metadata={"why": "a test"})
    assert [info.metadata for info in client.leases(holder="a")] == [{"why": "a test"}]
    lease.release()
    assert client.lease(lease.id).status == "released"
    assert [event.kind for event in client.history(lease.id)] == ["lease.granted", "lease.released"]


def test_a_note_with_a_number_that_would_not_be_kept_exactly_is_refused_by_name(client):
    with pytest.raises(ValueError, match=f"^{2**64} does not fit"):
        client.acquire("x:1", metadata={"n": 2**64})
    assert list(client.leases()) == []
    with client.acquire("x:1", metadata={"n": 2**64 - 1}) as lease:
        assert client.lease(lease.id).metadata == {"n": 2**64 - 1}


def test_a_block_is_stopped_when_another_guard_of_its_lease_releases_it(client, other):
    told = threading.Event()
    first = client.acquire("x:1", ttl=30, key="job-1")
    first.on_lost(lambda why: told.set())
    second = client.acquire("x:1", ttl=30, key="job-1")
    assert first.id == second.id
    with pytest.raises(tenure.LeaseLost, match="this process has released it"):
        with first:
            second.release()
            # Now, and not at the next heartbeat, which comes after ten seconds.
            eventually(lambda: False, within=5, what="the end of the block")
    assert told.wait(5)
    assert other.check("x:1").free
