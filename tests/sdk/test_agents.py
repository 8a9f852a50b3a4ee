"""Agents: the lease around the handler, what is written, and what happens when the lease is lost."""

import asyncio
import threading
import time

import pytest
import tenure
from agent_thread import Running
from tenure.agents import Agent, on_assignment, on_complete, on_lease_available, on_retry, on_state_change
from tenure_process import eventually


@pytest.fixture
def author(server):
    return tenure.OpenIntentClient(server.url, agent_id="author")


def new_intent(author, agent=None, **state):
    intent = author.create_intent("a title", "a description", initial_state=state)
    if agent:
        author.assign_agent(intent.id, agent)
    return intent


def test_an_assignment_made_before_the_agent_connects_is_worked_on(server, author):
    @Agent("late")
    class Late:
        @on_assignment
        async def handle(self, intent):
            return {"by": self.agent_id, "was": intent.state["given"]}

    intent = new_intent(author, "late", given=1)
    with Running(Late, server.url):
        eventually(lambda: author.get_intent(intent.id).state.get("by") == "late")
    assert author.get_intent(intent.id).state["was"] == 1
    assert author.get_leases(intent.id) == []


def test_a_function_that_is_not_async_works_too(server, author):
    @Agent("plain")
    class Plain:
        @on_assignment
        def handle(self, intent):
            time.sleep(0.01)
            return {"done": True}

    intent = new_intent(author, "plain")
    with Running(Plain, server.url):
        eventually(lambda: author.get_intent(intent.id).state.get("done"))


def test_a_lost_lease_cancels_the_handler_and_nothing_is_written(server, author):
    cancelled = threading.Event()

    @Agent("slow", ttl=1)
    class Slow:
        @on_assignment
        async def handle(self, intent):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return {"written": True}

    intent = new_intent(author, "slow")
    admin = tenure.Client(server.url, holder="admin")
    with Running(Slow, server.url):
        [lease] = eventually(lambda: author.get_leases(intent.id))
        admin.revoke(lease.id, "a test")
        assert cancelled.wait(20)
    assert "written" not in author.get_intent(intent.id).state


def test_a_handler_that_is_not_async_is_stopped_when_the_lease_is_lost_and_nothing_is_written(server, author):
    told, over = threading.Event(), threading.Event()

    @Agent("busy", ttl=1)
    class Busy:
        @on_assignment
        def handle(self, intent):
            try:
                while not over.is_set():
                    sum(range(1000))
            except tenure.LeaseLost:
                told.set()
                raise
            return {"written": True}

    intent = new_intent(author, "busy")
    admin = tenure.Client(server.url, holder="admin")
    with Running(Busy, server.url):
        [lease] = eventually(lambda: author.get_leases(intent.id))
        admin.revoke(lease.id, "a test")
        try:
            assert told.wait(20)
        finally:
            over.set()
    assert "written" not in author.get_intent(intent.id).state


def test_a_handler_that_is_not_async_is_stopped_when_there_is_no_time_left(server, author):
    began, told, over = threading.Event(), threading.Event(), threading.Event()

    @Agent("endless", drain_timeout=0)
    class Endless:
        @on_assignment
        def handle(self, intent):
            began.set()
            try:
                while not over.is_set():
                    sum(range(1000))
            except tenure.LeaseLost:
                told.set()
                raise

    new_intent(author, "endless")
    try:
        with Running(Endless, server.url):
            assert began.wait(20)
        assert told.wait(20)
    finally:
        over.set()


def test_as_many_handlers_that_are_not_async_run_at_once_as_the_agent_may(server, author):
    # More than the pool of an event loop has on any machine.
    crowd = 33
    together = threading.Barrier(crowd)

    @Agent("crowd", concurrency=crowd)
    class Crowd:
        @on_assignment
        def handle(self, intent):
            together.wait(20)
            return {"met": True}

    intents = [new_intent(author, "crowd") for _ in range(crowd)]
    with Running(Crowd, server.url):
        eventually(lambda: all(author.get_intent(intent.id).state.get("met") for intent in intents))


def test_a_handler_does_not_wait_for_one_that_lost_its_lease_and_sits_in_a_call(server, author):
    over = threading.Event()

    @Agent("stuck", ttl=1, concurrency=1)
    class Stuck:
        @on_assignment
        def handle(self, intent):
            if intent.state.get("stick"):
                over.wait(60)
            return {"done": True}

    first = new_intent(author, "stuck", stick=True)
    admin = tenure.Client(server.url, holder="admin")
    try:
        with Running(Stuck, server.url):
            [lease] = eventually(lambda: author.get_leases(first.id))
            admin.revoke(lease.id, "a test")
            second = new_intent(author, "stuck")
            eventually(lambda: author.get_intent(second.id).state.get("done"))
            over.set()
    finally:
        over.set()


def test_a_failed_handler_releases_and_is_reported(server, author):
    @Agent("clumsy")
    class Clumsy:
        @on_assignment
        async def handle(self, intent):
            raise ValueError("dropped it")

    intent = new_intent(author, "clumsy")
    with Running(Clumsy, server.url):
        [failure] = eventually(lambda: author.get_failures(intent.id))
        eventually(lambda: not author.get_leases(intent.id))
    assert "dropped it" in failure["error_message"]


def test_a_patch_that_json_cannot_say_is_reported_as_a_failure(server, author):
    @Agent("odd")
    class Odd:
        @on_assignment
        async def handle(self, intent):
            return {"what": object()}

    intent = new_intent(author, "odd")
    with Running(Odd, server.url):
        [failure] = eventually(lambda: author.get_failures(intent.id))
    assert "not JSON serializable" in failure["error_message"]


def test_a_handler_that_exits_is_reported_and_the_agent_goes_on(server, author):
    @Agent("restless")
    class Restless:
        @on_assignment
        def handle(self, intent):
            if "leave" in intent.state:
                raise SystemExit("bye")
            return {"done": True}

    first = new_intent(author, "restless", leave=True)
    with Running(Restless, server.url):
        [failure] = eventually(lambda: author.get_failures(first.id))
        second = new_intent(author, "restless")
        eventually(lambda: author.get_intent(second.id).state.get("done"))
    assert "SystemExit('bye')" in failure["error_message"]


def test_a_time_to_drain_that_is_no_number_of_seconds_is_refused(server):
    @Agent("hasty", drain_timeout=float("inf"))
    class Hasty:
        pass

    agent = Hasty()
    # One that runs all the same would run for ever.
    stop = threading.Timer(10, agent.stop)
    stop.start()
    with pytest.raises(ValueError, match="drain_timeout must be a number of seconds, not inf"):
        agent.run(server.url)
    stop.cancel()


def test_a_retry_calls_its_own_handler(server, author):
    attempts = []

    @Agent("stubborn")
    class Stubborn:
        @on_assignment
        async def handle(self, intent):
            raise ValueError("first")

        @on_retry
        async def again(self, intent, attempt, last_error):
            attempts.append((attempt, last_error))
            return {"tried": attempt}

    intent = new_intent(author)
    author.set_retry_policy(intent.id, strategy="fixed", max_retries=2, base_delay_ms=50, max_delay_ms=1000)
    author.assign_agent(intent.id, "stubborn")
    with Running(Stubborn, server.url):
        eventually(lambda: author.get_intent(intent.id).state.get("tried"))
    assert attempts[0][0] >= 1 and "first" in str(attempts[0][1])


def test_an_agent_stands_in_line_for_an_intent_that_somebody_holds(server, author):
    @Agent("patient")
    class Patient:
        @on_assignment
        async def handle(self, intent):
            return {"seen": intent.state.get("first")}

    intent = new_intent(author)
    other = tenure.OpenIntentClient(server.url, agent_id="other")
    lease = other.acquire_lease(intent.id, ttl_seconds=60)
    author.assign_agent(intent.id, "patient")
    with Running(Patient, server.url):
        watcher = tenure.Client(server.url, holder="watcher")
        waits = lambda: any(c.waiting for c in watcher.check(f"intent:{intent.id}/*").conflicts)
        eventually(waits, what="it waits")
        other.patch_state(intent.id, {"first": "written under the other lease"})
        other.release_lease(lease.id)
        eventually(lambda: "seen" in author.get_intent(intent.id).state)
    assert author.get_intent(intent.id).state["seen"] == "written under the other lease"


def test_changes_and_completion_are_told(server, author):
    told = []

    @Agent("listener")
    class Listener:
        @on_assignment
        async def handle(self, intent):
            told.append("assigned")

        @on_state_change(["colour"])
        async def changed(self, intent, old, new):
            told.append(("colour", old.get("colour"), new.get("colour")))

        @on_complete
        async def complete(self, intent):
            told.append("complete")

    intent = new_intent(author, "listener", colour="red")
    with Running(Listener, server.url):
        eventually(lambda: "assigned" in told)
        eventually(lambda: not author.get_leases(intent.id))
        author.patch_state(intent.id, {"shape": "round"})
        author.patch_state(intent.id, {"colour": "blue"})
        eventually(lambda: ("colour", "red", "blue") in told)
        intent = author.get_intent(intent.id)
        intent = author.set_status(intent.id, intent.version, "active")
        author.set_status(intent.id, intent.version, "completed")
        eventually(lambda: "complete" in told)
    assert len([one for one in told if one[0] == "colour"]) == 1


def test_two_agents_race_for_a_free_scope_and_one_works_at_a_time(server, author):
    inside, worked = [], []

    def worker(name):
        @Agent(name, auto_heartbeat=False)
        class Racer:
            @on_lease_available("research")
            async def claim(self, intent, scope):
                async with self.lease(intent.id, scope, ttl=5, wait=20):
                    inside.append(name)
                    assert len(inside) == 1
                    await asyncio.sleep(0.05)
                    inside.remove(name)
                    worked.append(name)

        return Racer

    intent = new_intent(author)
    for name in ("racer-1", "racer-2"):
        author.assign_agent(intent.id, name)
    someone = tenure.OpenIntentClient(server.url, agent_id="someone")
    lease = someone.acquire_lease(intent.id, scope="research", ttl_seconds=60)
    with Running(worker("racer-1"), server.url), Running(worker("racer-2"), server.url):
        time.sleep(0.5)
        someone.release_lease(lease.id)
        eventually(lambda: {"racer-1", "racer-2"} <= set(worked))


def test_an_agent_with_capabilities_is_listed_while_it_runs(server, author):
    @Agent("known", capabilities=["summaries"])
    class Known:
        pass

    status = lambda: {record.agent_id: record.status for record in author.list_agents()}.get("known")
    with Running(Known, server.url):
        eventually(lambda: status() == "active")
        assert author.get_agent_record("known").capabilities == ["summaries"]
    assert status() == "deregistered"
