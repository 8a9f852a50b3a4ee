"""Events as they happen: nothing skipped, nothing twice, over broken connections and cancelled waits."""

import asyncio
import threading

import tenure


def take(stream, count):
    return [next(stream) for _ in range(count)]


def cycle(client, resource):
    with client.acquire(resource):
        pass


def test_a_watch_from_the_beginning_gives_everything_in_order(client):
    cycle(client, "x:1")
    stream = client.watch(after=0, resource="x:1")
    first = take(stream, 2)
    assert [event.kind for event in first] == ["lease.granted", "lease.released"]
    assert stream.cursor == first[-1].cursor
    cycle(client, "y:1")
    cycle(client, "x:1")
    assert [event.data["resources"] for event in take(stream, 2)] == [["x:1"], ["x:1"]]


def test_a_watch_goes_on_where_another_stopped(client):
    for number in range(3):
        cycle(client, f"x:{number}")
    one = client.watch(after=0)
    seen = [event.cursor for event in take(one, 3)]
    rest = [event.cursor for event in take(client.watch(after=one.cursor), 3)]
    everything = [event.cursor for event in client.events()]
    assert seen + rest == everything[:6]


def test_a_watch_from_now_on_waits_for_what_happens(server, client):
    cycle(client, "x:before")
    stream, got, listening = client.watch(resource="x:1"), [], threading.Event()

    def listen():
        listening.set()
        got.append(next(stream))

    thread = threading.Thread(target=listen)
    thread.start()
    listening.wait()
    # Connecting takes a moment; whatever is granted after it is told.
    while thread.is_alive():
        cycle(client, "x:1")
        thread.join(0.05)
    assert got[0].data["resources"] == ["x:1"]


def test_a_restart_of_the_server_leaves_no_gap(server, client):
    cycle(client, "x:1")
    stream = client.watch(after=0, kind="lease.granted")
    first = next(stream)
    server.kill()
    server.start(server.address)
    cycle(client, "x:2")
    second = next(stream)
    assert (first.data["resources"], second.data["resources"]) == (["x:1"], ["x:2"])


def test_a_cancelled_wait_loses_nothing(server, client):
    async def listen():
        stream = tenure.AsyncClient(server.url, holder="b").watch(after=0, kind="lease.granted")
        seen = []
        while len(seen) < 50:
            try:
                # Far too short: most waits are cancelled, some with an event on its way.
                seen.append(await asyncio.wait_for(stream.__anext__(), 0.002))
            except asyncio.TimeoutError:
                pass
        return [event.data["resources"] for event in seen]

    writer = threading.Thread(target=lambda: [cycle(client, f"x:{number}") for number in range(50)])
    writer.start()
    assert asyncio.run(asyncio.wait_for(listen(), 60)) == [[f"x:{number}"] for number in range(50)]
    writer.join()


def test_the_asynchronous_client_lists_like_the_other(server, client):
    leases = [client.acquire(f"x:{number}") for number in range(3)]

    async def look():
        other = tenure.AsyncClient(server.url, holder="b")
        held = [lease.id async for lease in other.leases(status="active")]
        events = [event.cursor async for event in other.events()]
        return held, events, await other.history(leases[0].id), await other.check("x:1")

    held, events, history, check = asyncio.run(look())
    assert sorted(held) == sorted(lease.id for lease in leases)
    assert events == [event.cursor for event in client.events()]
    assert [event.kind for event in history] == ["lease.granted"] and not check.free
    for lease in leases:
        lease.release()
