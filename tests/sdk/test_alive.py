"""Staying alive: heartbeats that nothing in Python can starve, and work that is told in time when they fail."""

import asyncio
import ctypes
import signal
import sys
import threading
import time

import pytest
import tenure
from sdk_support import Program, events
from tenure_process import eventually

TTL = 1.0


def test_a_busy_loop_of_ten_ttls_keeps_the_lease(client):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no other thread gets the interpreter
    try:
        with client.acquire("x:1", ttl=TTL) as lease:
            end = time.monotonic() + 10 * TTL
            while time.monotonic() < end:
                pass
            assert lease.state == "held"
    finally:
        sys.setswitchinterval(interval)
    assert not events(client, "lease.expired")


def test_c_code_that_never_lets_go_of_the_interpreter_keeps_the_lease(client):
    # PyDLL, unlike CDLL, calls without giving the interpreter lock away.
    with client.acquire("x:1", ttl=TTL) as lease:
        ctypes.PyDLL(None).usleep(int(4 * TTL * 1_000_000))
        assert lease.state == "held"
    assert not events(client, "lease.expired")


def test_a_blocked_event_loop_keeps_the_lease(server, client):
    async def work():
        async with tenure.AsyncClient(server.url, holder="b").acquire("x:1", ttl=TTL) as lease:
            time.sleep(3 * TTL)
            return lease.state

    assert asyncio.run(work()) == "held"
    assert not events(client, "lease.expired")


STOPPED = """
    import sys, time, tenure
    client = tenure.Client(sys.argv[1], holder="a")
    try:
        with client.acquire("x:1", ttl=1) as lease:
            print("holding", flush=True)
            while True:
                sum(range(1000))
    except tenure.LeaseLost as loss:
        print("told:", loss, flush=True)
"""


def test_a_stopped_process_loses_its_lease_and_is_told_when_it_goes_on(server, other):
    with Program(STOPPED, server.url) as program:
        assert program.line() == "holding"
        program.process.send_signal(signal.SIGSTOP)
        taken = other.acquire("x:1", wait=30)  # granted by the expiry alone
        program.process.send_signal(signal.SIGCONT)
        assert program.line().startswith("told: the lease on x:1 is lost")
        assert program.end()[0] == 0
        taken.check()
        taken.release()


def test_a_killed_process_loses_its_lease_after_the_ttl(server, other):
    with Program(STOPPED, server.url) as program:
        assert program.line() == "holding"
        program.process.kill()
        other.acquire("x:1", wait=30).release()
    assert len(events(other, "lease.expired")) == 1


def test_a_cut_connection_stops_the_thread_before_anyone_else_is_granted(wire, other):
    holder = tenure.Client(wire.url, holder="a")
    granted = []
    with pytest.raises(tenure.LeaseLost, match="no renewal was accepted in time"):
        with holder.acquire("x:1", ttl=2 * TTL) as lease:
            wire.cut()
            waiter = threading.Thread(target=lambda: granted.append(other.acquire("x:1", wait=30)))
            waiter.start()
            while True:
                assert not granted, "somebody else had it while this block still ran"
                time.sleep(0.001)
    assert lease.lost and not granted
    waiter.join(30)
    assert granted[0].token > lease.token
    granted[0].release()


def test_a_cut_connection_cancels_the_task(wire):
    async def work():
        async with tenure.AsyncClient(wire.url, holder="a").acquire("x:1", ttl=TTL):
            wire.cut()
            await asyncio.sleep(60)

    async def main():
        with pytest.raises(tenure.LeaseLost):
            await work()
        # The cancellation was answered: the task goes on as if nothing had been asked of it.
        await asyncio.sleep(0)
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_a_short_cut_is_not_noticed(wire, other):
    with tenure.Client(wire.url, holder="a").acquire("x:1", ttl=6 * TTL) as lease:
        wire.cut()
        eventually(lambda: lease.state == "at_risk", what="a renewal is overdue")
        wire.mend()
        eventually(lambda: lease.state == "held", what="a renewal is accepted again")
    assert not events(other, "lease.expired")


def test_a_revoked_lease_is_told_with_the_reason(client):
    lost = threading.Event()
    lease = client.acquire("x:1", ttl=TTL)
    lease.on_lost(lambda reason: (reasons.append(reason), lost.set()))
    reasons = []
    client.revoke(lease.id, "maintenance")
    assert lost.wait(20)
    assert reasons == ["it was revoked (maintenance)"] and lease.loss == reasons[0]


def test_a_restart_of_the_server_loses_none_of_two_hundred_guards(server):
    client = tenure.Client(server.url, holder="a")
    guards = [client.acquire(f"x:{n}", ttl=6) for n in range(200)]
    tokens = {guard.token for guard in guards}
    server.kill()
    server.start(server.address)
    end = time.monotonic() + 8  # longer than the ttl: every one is renewed with the new process
    while time.monotonic() < end:
        assert all(guard.state != "lost" for guard in guards)
        time.sleep(0.05)
    assert {lease.token for lease in client.leases(status="active")} == tokens
    for guard in guards:
        guard.release()


def test_a_thousand_leases_are_renewed_by_one_request_per_beat(wire):
    client = tenure.Client(wire.url, holder="a")
    lock, guards = threading.Lock(), []

    def acquire(start):
        for number in range(start, 1000, 8):
            guard = client.acquire(f"x:{number}", ttl=30)
            with lock:
                guards.append(guard)

    began = time.monotonic()
    threads = [threading.Thread(target=acquire, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Beats at most a quarter of an interval apart travel together; a busy machine may take longer to acquire them all.
    quarter = 2.5
    groups = 1 + (time.monotonic() - began) // quarter
    requests = lambda: bytes(wire.seen).count(b"POST /v1/leases/renew ")
    eventually(lambda: requests() > 0, within=30, what="the first beat")
    time.sleep(quarter)
    before, first = requests(), time.monotonic()
    eventually(lambda: requests() > before, within=30, what="the next beat")
    time.sleep(1)
    assert requests() - before <= groups + 1, "a thousand leases travel together"
    assert time.monotonic() - first > 5
    assert all(guard.state == "held" for guard in guards)
    for guard in guards:
        guard._guard.forget()
