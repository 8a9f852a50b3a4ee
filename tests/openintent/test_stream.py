"""SSE: the three paths, what an unchanged @Agent hears, resumption, assignments that wait."""

import asyncio
import contextlib
import re
import socket
import threading

import httpx
from openintent.agents import Agent, on_assignment, on_complete, on_lease_available, on_state_change
from openintent.models import EventType, IntentStatus

from support import Stream, until


def start(cls, url):
    """The way that starts an agent in 0.17.0: `run()` of the package never returns."""
    agent = cls(url, "key")
    agent._running = True
    threading.Thread(target=lambda: asyncio.run(agent._run_async()), daemon=True).start()
    return agent


def test_an_unchanged_agent_hears_assignments_leases_states_and_statuses(url, connect):
    heard = []

    @Agent("listener")
    class Listener:
        @on_assignment
        async def work(self, intent):
            heard.append(("assigned", intent.id))
            return {"answer": 42}

        @on_lease_available("research")
        async def claim(self, intent, scope):
            heard.append(("free", scope))

        @on_state_change(["news"])
        async def changed(self, intent, old, new):
            heard.append(("news", new["news"]))

        @on_complete
        async def completed(self, intent):
            heard.append(("complete", intent.id))

    maker = connect("maker")
    intent = maker.create_intent("work")
    maker.assign_agent(intent.id, "listener")  # before the agent is there: it is kept
    start(Listener, url)
    until(lambda: ("assigned", intent.id) in heard, what="the assignment")
    until(lambda: maker.get_intent(intent.id).state.data.get("answer") == 42, what="the returned state")
    lease = maker.acquire_lease(intent.id, "research", 60)
    maker.release_lease(intent.id, lease.id)
    until(lambda: ("free", "research") in heard, what="the lease")
    short = maker.acquire_lease(intent.id, "research", 1)
    until(lambda: heard.count(("free", "research")) == 2, what="the expiry, announced as a release")
    assert short.id not in [one.id for one in maker.get_leases(intent.id)]
    version = maker.get_intent(intent.id).version
    version = maker.update_state(intent.id, version, {"news": "spring"}).version
    until(lambda: ("news", "spring") in heard, what="the state")
    maker.set_status(intent.id, version, IntentStatus.COMPLETED)
    until(lambda: ("complete", intent.id) in heard, what="the status")


def test_an_assignment_is_kept_until_it_was_sent_and_sent_once(url, connect, http):
    maker = connect("maker")
    intent = maker.create_intent("work")
    maker.assign_agent(intent.id, "away")
    first = Stream(url, "/agents/away/subscribe", "away")
    assert first.wait("AGENT_ASSIGNED")[0][2]["intent_id"] == intent.id
    marker = maker.create_intent("marker")
    maker.assign_agent(marker.id, "away")
    seen = first.wait("AGENT_ASSIGNED", 2)[1]
    first.close()

    def told():
        second = Stream(url, "/agents/away/subscribe", "away")
        third = maker.create_intent("later")
        maker.assign_agent(third.id, "away")
        got = [event[2]["intent_id"] for event in second.wait("AGENT_ASSIGNED") if event]
        second.close()
        return got[0] == third.id and got

    until(told, what="a connection that is told only what is new")
    back = Stream(url, "/agents/away/subscribe", "away", last_event_id=int(seen[0]) - 1)
    assert back.wait("AGENT_ASSIGNED")[0][2]["intent_id"] == marker.id, "what came after the last id is sent again"
    back.close()


def test_the_releaser_is_not_told_of_its_own_release_and_the_stream_of_an_agent_has_five_names_only(url, connect):
    maker, worker = connect("maker"), connect("own")
    intent = maker.create_intent("work")
    for agent in ("own", "other"):
        maker.assign_agent(intent.id, agent)
    own, other = Stream(url, "/agents/own/subscribe", "own"), Stream(url, "/agents/other/subscribe", "other")
    lease = worker.acquire_lease(intent.id, "x", 60)
    worker.release_lease(intent.id, lease.id)
    maker.log_event(intent.id, EventType.COMMENT, {})
    other.wait("LEASE_RELEASED")
    maker.set_status(intent.id, 1, IntentStatus.ACTIVE)
    own.wait("STATUS_CHANGED")
    names = {event[1] for event in own.events + other.events}
    assert names == {"AGENT_ASSIGNED", "LEASE_RELEASED", "STATUS_CHANGED"}
    assert "LEASE_RELEASED" not in {event[1] for event in own.events}
    own.close(), other.close()


def test_followers_of_an_intent_and_of_its_portfolio_hear_everything_with_its_data(url, connect):
    maker = connect("maker")
    intent, portfolio = maker.create_intent("one"), maker.create_portfolio("p")
    maker.add_intent_to_portfolio(portfolio.id, intent.id)
    streams = [Stream(url, f"/intents/{intent.id}/subscribe"), Stream(url, f"/portfolios/{portfolio.id}/subscribe")]
    lease = maker.acquire_lease(intent.id, "x", 60)
    maker.update_state(intent.id, 1, {"k": 1})
    maker.release_lease(intent.id, lease.id)
    for stream in streams:
        assert stream.wait("LEASE_ACQUIRED")[0][2]["scope"] == "x"
        assert stream.wait("STATE_CHANGED")[0][2]["new_state"] == {"k": 1}
        assert stream.wait("LEASE_RELEASED")[0][2]["intent_id"] == intent.id
        stream.close()


def test_a_stream_is_broken_off_and_not_closed_when_the_server_stops(server):
    stream = Stream(server.url, "/agents/a/subscribe", "a")
    server.stop()
    until(lambda: stream.error, what="the end of the stream")
    assert isinstance(stream.error, httpx.RemoteProtocolError), stream.error


class SlowReader:
    """A subscriber that does not read until it is told to."""

    def __init__(self, url, path):
        host, port = url.split("//")[1].split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        request = f"GET /api/v1{path} HTTP/1.1\r\nHost: {host}\r\nX-Agent-ID: slow\r\nX-API-Key: key\r\n\r\n"
        self._socket.sendall(request.encode())
        assert b"200 OK" in self._socket.recv(100)

    def read_to_the_end(self):
        """Everything up to the moment the connection ends."""
        self._socket.settimeout(30)
        pieces = []
        with contextlib.suppress(ConnectionResetError):
            while piece := self._socket.recv(1 << 20):
                pieces.append(piece)
        return b"".join(pieces)


def test_defect_28_a_reader_that_does_not_keep_up_is_cut_off_and_gets_the_rest_when_it_comes_back(url, connect):
    maker = connect("maker")
    intent = maker.create_intent("much to tell")
    slow = SlowReader(url, f"/intents/{intent.id}/subscribe")
    count = 500
    for number in range(count):
        maker.log_event(intent.id, EventType.COMMENT, {"number": number, "text": "x" * 40_000})
    heard = slow.read_to_the_end()
    assert not heard.endswith(b"0\r\n\r\n"), "broken off, not ended: the package would come back at once, for ever"
    numbers = [int(number) for number in re.findall(rb'"number": ?(\d+)', heard)]
    assert numbers == list(range(len(numbers))) and 0 < len(numbers) < count, "what came has no gap, and it did not all come"
    last = re.findall(rb"^id: (\d+)\r?$", heard, re.MULTILINE)[-1].decode()
    again = Stream(url, f"/intents/{intent.id}/subscribe", agent="slow", last_event_id=last)
    told = lambda: [event[2]["number"] for event in again.events if "number" in event[2]]  # noqa: E731
    until(lambda: told() and told()[-1] == count - 1, what="the rest of the events")
    # The last one may have been cut in the middle; then it comes whole.
    assert told() == list(range(told()[0], count)) and told()[0] in (len(numbers) - 1, len(numbers))
    again.close()
