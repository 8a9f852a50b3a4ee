"""What the project's own guides promise, block by block."""

import json
import os
import subprocess

import tenure
from agent_thread import Running
from guide_blocks import promise
from tenure import conductor
from tenure_process import binary, eventually


def shell(code, world, **variables):
    """Runs shell code with this program and this Python in the path, against this server."""
    folder = world.folder
    for name, target in (("tenure", binary()), ("python", os.sys.executable)):
        link = folder / name
        if not link.exists():
            link.write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
            link.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, env=environment, cwd=folder)


def one(world, kind):
    """Events of this kind since the last look."""
    events = [event for event in world.observer.events(world.cursor)]
    world.cursor = max([world.cursor, *(event.cursor for event in events)])
    return [event.data for event in events if event.kind == kind]


@promise("guide/quickstart", 1, "starts a server that says where it is")
def _(block, world):
    words = block.code.split()
    assert words[0] == "tenure"
    process = subprocess.Popen([binary(), *words[1:], "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=world.folder)
    try:
        line = next(text for text in process.stdout if "http://" in text)
        assert (world.folder / "tenure-data").is_dir()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
    return line.strip()


@promise("guide/quickstart", 2, "holds the file while the command runs")
def _(block, world):
    one(world, "lease.granted")
    said = shell(block.code, world)
    events = [event for event in world.observer.events(world.cursor) if event.data.get("resources") == ["path:src/parser.rs"]]
    assert [event.kind for event in events] == ["lease.granted", "lease.released"]
    assert said.stdout.strip() == f"my token is {events[0].data['token']}", said


@promise("guide/quickstart", 3, "holds a file in a block, and a folder around it is refused meanwhile")
def _(block, world):
    space, printed = world.python(block)
    assert "refused: held by agent-7 until" in printed and space["lease"].state == "released"


@promise("guide/quickstart", 4, "lists what is held")
def _(block, world):
    with tenure.Client(holder="agent-9").acquire("x:listed"):
        said = shell(block.code, world)
    assert said.returncode == 0 and said.stdout.count("x:listed") == 2, said


@promise("guide/leasing", 1, "several at once, together with others, and in line")
def _(block, world):
    space, printed = world.python(block)
    assert "Conflict(resource='doc:plan'" in printed and "('doc:plan', 'doc:budget')" in printed
    assert not list(world.observer.leases(resource="doc:plan", status="active"))


@promise("guide/leasing", 2, "a block is stopped when its lease is lost, and told why")
def _(block, world):
    _, printed = world.python(block)
    assert "the lease on job:nightly is lost" in printed and "the machine is needed" in printed


@promise("guide/leasing", 3, "an asyncio block holds a lease")
def _(block, world):
    _, printed = world.python(block)
    assert printed.strip() == "held"
    assert not list(world.observer.leases(resource="job:hourly", status="active"))


@promise("guide/leasing", 4, "scopes of an intent: leased, refused, written under, renewed, listed, released")
def _(block, world):
    space, printed = world.python(block)
    assert "held by agent-a" in printed and "hotel agent-a active" in printed
    assert space["a"].get_intent(space["intent"].id).state == {"hotel": "searching"}
    assert world.kinds(space["lease"].id)[-1] == "lease.released"


@promise("guide/leasing", 5, "a stale version is refused, and the helper loses nothing")
def _(block, world):
    space, printed = world.python(block)
    assert "version 2 is there" in printed and "{'n': 2}" in printed


@promise("guide/leasing", 6, "the second coordinator is refused and told who leads")
def _(block, world):
    _, printed = world.python(block)
    assert printed.strip() == "led by coordinator-1"


@promise("guide/leasing", 7, "tells what happened, and where to go on")
def _(block, world):
    space, printed = world.python(block)
    *told, last = printed.strip().splitlines()
    assert told == ["lease.granted by watcher", "lease.released by watcher"]
    assert last == f"go on after {list(world.observer.events(resource='doc:minutes'))[-1].cursor}"


@promise("guide/locks", 1, "takes, keeps, lists and gives back a lock")
def _(block, world):
    said = world.shell("set -e\n" + block.code)
    assert said.returncode == 0 and "issue:8057324b" in said.stdout and not world.held(), said


@promise("guide/locks", 2, "commits under the lock, and releases it in the end; a held file is left alone")
def _(block, world):
    said = world.shell(block.code)
    assert "Update settings" in world.shell("git log -1 --format=%s").stdout and not world.held(), said
    world.shell("tenure lock acquire --resource path:config --ttl 5m", "bob")
    assert "somebody else has it" in world.shell(block.code).stdout
    world.shell("tenure lock release --resource path:config", "bob")


@promise("guide/locks", 3, "holds a lock while a command runs")
def _(block, world):
    said = world.shell(block.code.replace("echo migrating", "echo migrating; tenure lock status"))
    assert said.returncode == 0 and "migrating" in said.stdout and "repo:migration" in said.stdout and not world.held()


@promise("guide/locks", 4, "cleans up")
def _(block, world):
    assert world.shell(block.code).returncode == 0


@promise("guide/tasks", 1, "is a definition that the server keeps")
def _(block, world):
    definition = json.loads(block.code)
    world.metadata.register_task_def(definition)
    kept = world.metadata.get_task_def("resize")
    assert {name: kept[name] for name in definition} == definition


@promise("guide/tasks", 2, "a computation longer than the response timeout keeps its task")
def _(block, world):
    space, _ = world.python(block)
    flow = world.workflows.get_workflow(space["workflow_id"])
    assert (flow["status"], len(flow["tasks"])) == ("COMPLETED", 1), flow
    assert flow["tasks"][0]["outputData"] == {"resized": "a.png"}
    return "3 s of pure Python under a response timeout of 2 s: one attempt"


@promise("guide/tasks", 3, "work in pieces starts at 0 and ends complete")
def _(block, world):
    space, _ = world.python(block)
    world.define("count")
    with world.working(space["count"]):
        flow = world.ended(world.start("count", total=250))
    task = flow["tasks"][-1]
    assert (task["pollCount"], task["outputData"]) == (4, {"counted": 300})


@promise("guide/tasks", 4, "the environment of one worker is stronger than that of all")
def _(block, world):
    assert shell(block.code, world).stdout.strip() == "False"


@promise("guide/workflows", 1, "is a workflow that the server keeps")
def _(block, world):
    world.metadata.register_workflow_def(json.loads(block.code))


@promise("guide/workflows", 2, "tasks are retried as their definitions say")
def _(block, world):
    world.python(block)
    assert world.metadata.get_task_def("fetch")["retryCount"] == 2


@promise("guide/workflows", 3, "a failed attempt is repeated, and the next step gets what the first one made")
def _(block, world):
    conductor.worker._decorated.clear()
    space, printed = world.python(block)
    flow = world.workflows.get_workflow(space["workflow_id"])
    assert printed.strip() == "COMPLETED"
    statuses = [(task["referenceTaskName"], task["status"]) for task in flow["tasks"]]
    assert statuses == [("fetch", "FAILED"), ("fetch", "COMPLETED"), ("process", "COMPLETED")]
    assert flow["tasks"][-1]["outputData"] == {"words": 3}


@promise("guide/workflows", 4, "is a file that the program can read")
def _(block, world):
    (world.folder / "report.yaml").write_text(block.code)


@promise("guide/workflows", 5, "are two agents that complete their steps")
def _(block, world):
    world.steps, _ = world.python(block)


@promise("guide/workflows", 6, "runs the steps one after the other, each by its agent")
def _(block, world):
    with Running(world.steps["Drafter"], world.url), Running(world.steps["Reviewer"], world.url):
        said = shell(block.code, world)
    assert said.returncode == 0, said
    intents = {intent.title: intent for intent in world.agent("x").list_intents()}
    draft, review = intents["Draft the report"], intents["Review the report"]
    assert (draft.status, draft.state["by"]) == ("completed", "drafter")
    assert (review.status, review.state["by"]) == ("completed", "reviewer")
    assert draft.updated_at <= review.updated_at


@promise("guide/agents", 1, "is an agent: assigned work under its lease, and free scopes")
def _(block, world):
    world.summariser, _ = world.python(block)


@promise("guide/agents", 2, "assigns it, and the summary is written")
def _(block, world):
    space, _ = world.python(block)
    author, intent = space["author"], space["intent"]
    state = lambda: author.get_intent(intent.id).state
    with Running(world.summariser["Summariser"], world.url):
        eventually(lambda: state().get("summary", "").startswith("A long report, under token"))
        eventually(lambda: not author.get_leases(intent.id))
        other = world.agent("other")
        other.release_lease(other.acquire_lease(intent.id, scope="review", ttl_seconds=60).id)
        eventually(lambda: state().get("reviewed"))
