"""Threads: each waits on its own, whatever the others do, and what one made another may use."""

import concurrent.futures
import threading

import tenure
from sdk_support import Program, events
from tenure_process import eventually

#: More than the package has lanes for.
CROWD = 100


def in_thread(work):
    """Runs it in a thread that is gone afterwards."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_threads_that_come_and_go_share_one_connection(wire):
    client = tenure.Client(wire.url, holder="a")
    for number in range(20):
        in_thread(lambda: client.check(f"x:{number}"))
    assert wire.connections == 1


def test_threads_that_call_at_once_have_a_connection_each_and_keep_it(wire):
    client = tenure.Client(wire.url, holder="a")
    together = threading.Barrier(8)

    def calls(number):
        for _ in range(20):
            together.wait()
            client.check(f"x:{number}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, range(8)))
    assert wire.connections <= 8


def test_a_lease_of_a_thread_that_is_gone_is_kept_and_given_back_by_another(client, other):
    lease = in_thread(lambda: client.acquire("x:1", ttl=2))
    first = client.lease(lease.id).expires_at
    eventually(lambda: client.lease(lease.id).expires_at > first, what="it was renewed")
    lease.check()
    in_thread(lease.release)
    other.acquire("x:1").release()


def test_a_stream_may_be_read_by_another_thread(client):
    stream = client.watch(after=0, kind="lease.granted")
    client.acquire("x:1").release()
    client.acquire("x:2").release()
    assert next(stream).data["resources"] == ["x:1"]
    assert in_thread(lambda: next(stream)).data["resources"] == ["x:2"]


def test_a_stream_that_nobody_reads_any_more_ends_although_other_threads_go_on(server, client):
    def followers():
        return server.metric("tenure_event_followers")

    together, over = threading.Barrier(2), threading.Event()

    def go_on():
        together.wait()
        while not over.is_set():
            client.check("x:2")

    def look_once():
        stream = client.watch(after=0)
        together.wait()
        client.acquire("x:1").release()
        next(stream)
        eventually(lambda: followers() == 1, what="the server knows of the stream")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        going_on = pool.submit(go_on)
        in_thread(look_once)
        try:
            eventually(lambda: followers() == 0, what="the stream has ended")
        finally:
            over.set()
        going_on.result()


def test_more_waiting_threads_than_lanes_are_all_served(server, client):
    held = client.acquire("x:1")

    def wait(number):
        with tenure.Client(server.url, holder=f"w{number}").acquire("x:1", wait=60) as lease:
            return lease.token

    with concurrent.futures.ThreadPoolExecutor(CROWD) as pool:
        waiting = [pool.submit(wait, number) for number in range(CROWD)]
        watcher = tenure.Client(server.url, holder="c")
        eventually(lambda: watcher.check("x:1").conflicts[0].waiting == CROWD, what="all of them wait")
        held.release()
        assert len({one.result(60) for one in waiting}) == CROWD


def test_what_several_threads_hold_is_given_back_at_the_end(server, client):
    program = """
        import concurrent.futures, sys, tenure, threading
        client = tenure.Client(sys.argv[1], holder="p")
        together = threading.Barrier(4)
        def hold(number):
            together.wait()
            return client.acquire(f"x:{number}", ttl=60)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            held = list(pool.map(hold, range(4)))
        print("held", flush=True)
    """
    with Program(program, server.url) as holder:
        assert holder.line() == "held"
        assert holder.end() == (0, "")
    assert len(events(client, "lease.released")) == 4
