"""What the two documents about leasing intents promise, block by block."""

import asyncio
import pathlib
import subprocess
import tempfile
import time

import pytest
import tenure
from agent_thread import Running
from guide_blocks import promise
from tenure.agents import Agent, on_assignment
from tenure_process import binary, eventually

EXAMPLES, GUIDE = "leasing-examples", "leasing-guide"


@promise(EXAMPLES, 1, "leases the whole intent, writes its state, renews and releases")
def _(block, world):
    intent = world.new_intent()
    renewals = world.server.metric("tenure_renewals_total")
    space, printed = world.python(block, intent_id=intent.id)
    lease = space["lease"]
    assert (lease.agent_id, lease.scope) == ("worker-1", "*") and lease.id in printed
    kinds = world.kinds(lease.id)
    assert (kinds[0], kinds[-1]) == ("lease.granted", "lease.released")
    granted = world.observer.lease(lease.id)
    assert granted.resources == (f"intent:{intent.id}/*",) and granted.ttl == 120
    # All of it may happen within a millisecond, and then the end is where it was.
    assert granted.expires_at >= lease.expires_at and world.server.metric("tenure_renewals_total") == renewals + 1
    assert world.agent("x").get_intent(intent.id).state["status"] == "in_progress"
    return "granted for 120 s, renewed, released; the state is written"


@promise(EXAMPLES, 2, "the second agent is refused and told by whom")
def _(block, world):
    names = {"client_a": world.agent("agent-a"), "client_b": world.agent("agent-b"), "intent": world.new_intent()}
    space, printed = world.python(block, ConflictError=tenure.ConflictError, **names)
    assert printed.strip() == "Intent already leased by agent-a" and "lease_b" not in space
    [lease] = space["client_a"].get_leases(space["intent"].id)
    assert lease.agent_id == "agent-a"
    return printed.strip()


@promise(EXAMPLES, 3, "the lease is taken before the handler, kept during it and released after it")
def _(block, world):
    space, _ = world.python(block)
    seen, intent = [], world.new_intent()

    async def do_long_task(self, about):
        for _ in range(30):  # three times the ttl
            [lease] = world.agent("x").get_leases(about.id)
            seen.append((lease.agent_id, lease.scope, lease.id))
            await asyncio.sleep(0.1)
        with pytest.raises(tenure.ConflictError) as refusal:
            world.agent("thief").acquire_lease(about.id, ttl_seconds=5)
        assert refusal.value.current_holder == "reliable-worker"

    space["ReliableWorker"].do_long_task = do_long_task
    with Running(space["ReliableWorker"], world.url, ttl=1):
        world.agent("author").assign_agent(intent.id, "reliable-worker")
        eventually(lambda: world.agent("x").get_intent(intent.id).state.get("status") == "done", what="it is done")
        eventually(lambda: not world.agent("x").get_leases(intent.id), what="the lease is released")
    assert {(agent, scope) for agent, scope, _ in seen} == {("reliable-worker", "*")}
    assert world.kinds(seen[0][2])[-1] == "lease.released" and len({lease for *_, lease in seen}) == 1
    return "one lease of 1 s held for 3 s, state written, released"


@promise(EXAMPLES, 4, "a writer that was overtaken is refused, reads again and writes")
def _(block, world):
    intent, client = world.new_intent(), world.agent("a")
    world.python(block, client=client, intent_id=intent.id, ConflictError=tenure.ConflictError)
    assert client.get_intent(intent.id).state["progress"] == 50

    class Overtaken:
        """Somebody else writes between the first read and the write."""

        reads = 0

        def __getattr__(self, name):
            return getattr(client, name)

        def get_intent(self, intent_id):
            read = client.get_intent(intent_id)
            self.reads += 1
            if self.reads == 1:
                world.agent("b").patch_state(intent_id, {"other": 1})
            return read

    intent, overtaken = world.new_intent(), Overtaken()
    world.python(block, client=overtaken, intent_id=intent.id, ConflictError=tenure.ConflictError)
    assert overtaken.reads == 2
    assert client.get_intent(intent.id).state == {"progress": 50, "other": 1}
    return "both writes are there"


@promise(EXAMPLES, 5, "one coordinator at a time; when it is gone, another takes over")
def _(block, world):
    first, second = world.agent("coordinator-1"), world.agent("coordinator-2")
    portfolio = first.create_portfolio("all")
    space, _ = world.python(block, client=first, portfolio=portfolio)
    assert space["coord_lease"].agent_id == "coordinator-1"
    with pytest.raises(tenure.ConflictError) as refusal:
        world.python(block, client=second, portfolio=portfolio)
    assert refusal.value.current_holder == "coordinator-1"
    crashed = first.create_portfolio("short")
    first.acquire_coordinator_lease(portfolio_id=crashed.id, ttl_seconds=1)

    def take_over():
        try:
            return second.acquire_coordinator_lease(portfolio_id=crashed.id, ttl_seconds=600)
        except tenure.ConflictError:
            return None

    assert eventually(take_over).agent_id == "coordinator-2"


def step(name, done, failures=0):
    """An agent that fails so often on its step, and then completes it."""

    @Agent(name)
    class Step:
        @on_assignment
        async def handle(self, intent):
            done.append((name, time.monotonic()))
            if len([one for one, _ in done if one == name]) <= failures:
                raise ConnectionError("not yet")
            return {"by": name}

    class Completing(Step):
        async def _handle(self, kind, intent, details):
            patch = await super()._handle(kind, intent, details)
            if kind in ("assignment", "retry"):
                now = self.client.get_intent(intent.id)
                if now.status == "draft":
                    now = self.client.set_status(intent.id, now.version, "active")
                self.client.set_status(intent.id, now.version, "completed")
            return patch

    return Completing


@promise(EXAMPLES, 6, "a failed step is tried again after its delay, and the next one waits for it")
def _(block, world):
    done = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "pipeline.yaml")
        path.write_text(block.code)
        command = [binary(), "workflow", "run", str(path), "--url", world.url]
        with Running(step("fetcher", done, failures=1), world.url), Running(step("processor", done), world.url):
            run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run
    assert [name for name, _ in done] == ["fetcher", "fetcher", "processor"]
    assert done[1][1] - done[0][1] >= 1.9, "the base delay is two seconds"
    return "one failure, again after 2 s, then the second step; exit code 0"


@promise(GUIDE, 1, "the same scope goes from A to B only after A's release")
def _(block, world):
    intent, a, b = world.new_intent(), world.agent("Agent A"), world.agent("Agent B")
    said = []
    for line in block.code.splitlines():
        if "->>S: Acquire" in line:
            who = a if line.strip().startswith("A") else b
            try:
                lease = who.acquire_lease(intent.id, scope="research", ttl_seconds=60)
                said.append("granted")
            except tenure.ConflictError as refusal:
                said.append(f"held by {refusal.current_holder}")
        elif "->>S: Release" in line:
            a.release_lease(lease.id)
        elif "S-->>" in line:
            expected = "granted" if "granted" in line else "held by Agent A"
            assert said[-1] == expected, line
    assert said == ["granted", "held by Agent A", "granted"]


@promise(GUIDE, 2, "leases one scope for two minutes in the agent's name")
def _(block, world):
    intent = world.new_intent()
    space, printed = world.python(block, intent=intent)
    lease = space["lease"]
    [listed] = world.agent("x").get_leases(intent.id)
    assert (listed.agent_id, listed.scope, listed.id) == ("worker-1", "data_processing", lease.id)
    assert world.observer.lease(lease.id).ttl == 120 and lease.id in printed
    with pytest.raises(tenure.ConflictError):
        world.agent("x").acquire_lease(intent.id, ttl_seconds=5)
    return "and the whole intent is refused meanwhile"


@promise(GUIDE, 3, "a scope is held inside the block only; a free scope is claimed")
def _(block, world):
    seen = []

    async def do_exclusive_work(intent):
        seen.extend((lease.agent_id, lease.scope) for lease in world.agent("x").get_leases(intent.id))
        return "worked"

    async def research(description):
        return f"findings about {description}"

    space, _ = world.python(block, do_exclusive_work=do_exclusive_work, research=research)
    intent, other = world.new_intent(), world.new_intent()
    state = lambda one: world.agent("x").get_intent(one.id).state
    with Running(space["ExclusiveWorker"], world.url):
        world.agent("author").assign_agent(intent.id, "exclusive-worker")
        eventually(lambda: state(intent).get("result") == "worked", what="the result is written")
        assert ("exclusive-worker", "processing") in seen
        eventually(lambda: not world.agent("x").get_leases(intent.id), what="all leases are released")
        world.agent("author").assign_agent(other.id, "exclusive-worker")
        eventually(lambda: state(other).get("result") == "worked")
        eventually(lambda: not world.agent("x").get_leases(other.id))
        someone = world.agent("someone")
        lease = someone.acquire_lease(other.id, scope="research", ttl_seconds=60)
        someone.release_lease(lease.id)
        eventually(lambda: "findings" in state(other), what="the free scope was claimed")
    assert state(other)["findings"] == "findings about what is to be done"
    return "nested within the whole intent; the handler's own release does not call it again"


@promise(GUIDE, 4, "moves the end of a lease")
def _(block, world):
    intent = world.new_intent()
    space, printed = world.python(block, client=world.agent("a"), intent=intent)
    lease, renewed = space["lease"], space["renewed"]
    # Both may fall into one millisecond; what the server has must be what the renewal said.
    assert renewed.id == lease.id and renewed.expires_at >= lease.expires_at
    assert [listed.expires_at for listed in world.agent("x").get_leases(intent.id)] == [renewed.expires_at]
    assert str(renewed.expires_at) in printed


@promise(GUIDE, 5, "a held scope is a ConflictError")
def _(block, world):
    intent = world.new_intent()
    world.agent("b").acquire_lease(intent.id, scope="research", ttl_seconds=60)
    space, printed = world.python(block, client=world.agent("a"), intent=intent)
    assert "Another agent holds this lease" in printed and "lease" not in space


@promise(GUIDE, 6, "lists scope, agent, status and end of what is held")
def _(block, world):
    intent = world.new_intent()
    world.agent("a").acquire_lease(intent.id, scope="one", ttl_seconds=60)
    world.agent("b").acquire_lease(intent.id, scope="two", ttl_seconds=60)
    _, printed = world.python(block, client=world.agent("a"), intent=intent)
    assert "Scope: one, Agent: a, Status: active" in printed and "Scope: two, Agent: b, Status: active" in printed
