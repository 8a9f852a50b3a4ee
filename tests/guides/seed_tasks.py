"""What the document about task leases promises, block by block."""

import ast
import datetime
import json
import os
import subprocess
import textwrap
import time
from typing import Union

import stand_ins
from guide_blocks import promise
from tenure import conductor
from tenure_process import eventually

DOCUMENT = "tasks"
NAMES = {
    "Union": Union,
    "datetime": datetime.datetime,
    "worker_task": conductor.worker_task,
    "TaskInProgress": conductor.TaskInProgress,
    "TaskResult": conductor.TaskResult,
    "TaskResultStatus": conductor.TaskResultStatus,
    "get_task_context": conductor.get_task_context,
}


def functions(world, block, **names):
    """The worker of a block, with pauses of a second."""
    block.code = stand_ins.faster(block.code)
    space, _ = world.python(block, **NAMES, **names)
    return next(value for value in space.values() if hasattr(value, "_tenure_worker"))


def runs(world, function, name, inputs, **rules):
    """The ended workflow of one task that the worker ran."""
    world.define(name, **rules)
    with world.working(function):
        return world.ended(world.start(name, **inputs))


def long_work(world, seconds):
    """Computes without giving the interpreter away for longer than the response timeout."""

    def work(_):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return stand_ins.Thing

    return work


def kept(world, block, name, stub, inputs, **expected):
    """A function that takes 3.5 s of a task whose response timeout is 1 s, and is not disturbed."""
    function = functions(world, block, **{stub: long_work(world, 3.5)})
    flow = runs(world, function, name, inputs, responseTimeoutSeconds=1)
    task = flow["tasks"][-1]
    assert (flow["status"], len(flow["tasks"]), task["pollCount"]) == ("COMPLETED", 1, 1), flow
    return task["outputData"]


@promise(DOCUMENT, 1, "a function longer than the response timeout would lose its task without extension")
def _(block, world):
    function = functions(world, block, expensive_ml_model_training=long_work(world, 4))
    function._tenure_worker.lease_extend_enabled = False
    world.define("long_processing_task", responseTimeoutSeconds=1, retryCount=1, retryDelaySeconds=0)
    with world.working(function):
        flow_id = world.start("long_processing_task", dataset_id="d")
        first = eventually(
            lambda: next((t for t in world.workflows.get_workflow(flow_id)["tasks"] if t["status"] == "TIMED_OUT"), None),
            what="the first attempt timed out",
        )
        again = eventually(lambda: len(world.workflows.get_workflow(flow_id)["tasks"]) > 1, what="it is handed out again")
        assert first and again
        world.workflows.terminate_workflow(flow_id, "seen enough")
    return "without extension it timed out and was handed out again"


@promise(DOCUMENT, 2, "extension keeps the task for as long as the function runs")
def _(block, world):
    out = kept(world, block, "long_processing_task", "expensive_ml_model_training", {"dataset_id": "d"})
    assert out == {"model_id": "m-1"}
    return "3.5 s of pure Python under a response timeout of 1 s: one attempt, completed"


@promise(DOCUMENT, 3, "a result in progress hands the task out again after its callback")
def _(block, world):
    world.define("by_hand")
    flow_id = world.start("by_hand")
    native = world.configuration.connect("by-hand")
    [polled] = eventually(lambda: native.tasks("GET", "/tasks/poll/batch/by_hand?count=1&workerid=by-hand", None))
    polled_task = type("Polled", (), {"task_id": polled["taskId"], "workflow_instance_id": flow_id})
    space, _ = world.python(block, task=polled_task, **NAMES)
    native.tasks("POST", "/tasks", space["task_result"].to_dict())
    task = world.task(flow_id)
    assert (task["status"], task["callbackAfterSeconds"]) in (("SCHEDULED", 60), ("IN_PROGRESS", 60)), task
    assert native.tasks("GET", "/tasks/poll/batch/by_hand?count=1&workerid=by-hand", None) in ([], None)
    world.workflows.terminate_workflow(flow_id)
    return "not polled before its 60 s"


@promise(DOCUMENT, 4, "the lease is extended without a word in the function")
def _(block, world):
    out = kept(world, block, "ml_training", "train_neural_network", {"dataset": {}})
    assert out == {"model_id": "m-1", "accuracy": 0.9}


@promise(DOCUMENT, 5, "each poll goes on where the last one stopped, from the first item on")
def _(block, world):
    asked = []

    def process_next_100_items(batch_id, offset):
        asked.append(offset)
        return 100 if offset < 200 else 42

    function = functions(world, block, process_next_100_items=process_next_100_items)
    flow = runs(world, function, "batch_processor", {"batch_id": "b"})
    assert asked == [0, 100, 200]
    task = flow["tasks"][-1]
    assert (flow["status"], task["pollCount"]) == ("COMPLETED", 3)
    assert task["outputData"] == {"status": "completed", "total_processed": 242}


@promise(DOCUMENT, 6, "a fast task needs no extension")
def _(block, world):
    function = functions(world, block)
    assert function._tenure_worker.resolved({}).lease_extend_enabled is False
    flow = runs(world, function, "quick_validation", {"data": {"required_field": 1}})
    assert flow["tasks"][-1]["outputData"] == {"valid": True}


@promise(DOCUMENT, 7, "the flag in the code decides if nothing else does")
def _(block, world):
    assert functions(world, block)._tenure_worker.resolved({}).lease_extend_enabled is True


@promise(DOCUMENT, 8, "the environment of a worker overrules that of all, which overrules the code")
def _(block, world):
    lines = [line.removeprefix("export ") for line in block.code.splitlines() if line.startswith("export ")]
    environment = dict(line.split("=", 1) for line in lines)
    assert len(environment) == 2
    worker = lambda name, code: conductor.Worker(name, print, lease_extend_enabled=code)
    assert worker("my_task", True).resolved(environment).lease_extend_enabled is False
    assert worker("another", False).resolved(environment).lease_extend_enabled is True
    shell = subprocess.run(["bash", "-c", block.code], capture_output=True)
    assert shell.returncode != 0, "a shell cannot export names with dots: the documented names with underscores are for it"
    code = "from tenure.conductor import Worker; print(Worker('my_task', print).resolved().lease_extend_enabled)"
    script = f"export CONDUCTOR_WORKER_MY_TASK_LEASE_EXTEND_ENABLED=false\n'{os.sys.executable}' -c \"{code}\""
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert said.stdout.strip() == "False", said
    return "set as process environment; the names for shells too"


def registered(block, world):
    definition = json.loads(stand_ins.strip_comments(block.code))
    world.metadata.register_task_def(definition)
    kept_ = world.metadata.get_task_def(definition["name"])
    assert {name: kept_[name] for name in definition} == definition


@promise(DOCUMENT, 9, "is a definition that the server keeps as it is")
def _(block, world):
    registered(block, world)


@promise(DOCUMENT, 10, "extensions go on until timeoutSeconds, and not beyond")
def _(block, world):
    @conductor.worker_task("bounded")
    def bounded():
        time.sleep(8)

    world.define("bounded", responseTimeoutSeconds=1, timeoutSeconds=3, timeoutPolicy="TIME_OUT_WF")
    with world.working(bounded):
        started = time.monotonic()
        flow = world.ended(world.start("bounded"))
        assert flow["status"] == "TIMED_OUT" and 2.5 < time.monotonic() - started < 7
    return "1 s extended up to 3 s, then timed out"


@promise(DOCUMENT, 11, "a long encoding keeps its task")
def _(block, world):
    function = functions(world, block, encode_large_video=lambda _: long_work(world, 3.5)(_) and {"ok": True})
    flow = runs(world, function, "video_encoding", {"video_id": "v"}, responseTimeoutSeconds=1)
    assert (flow["status"], len(flow["tasks"])) == ("COMPLETED", 1)


@promise(DOCUMENT, 12, "is a definition that the server keeps as it is")
def _(block, world):
    registered(block, world)


@promise(DOCUMENT, 13, "a migration goes on from its offset, from record 0 on")
def _(block, world):
    offsets = []

    def migrate_records(source, offset, limit):
        offsets.append((offset, limit))
        return limit if offset == 0 else 7

    function = functions(world, block, migrate_records=migrate_records)
    flow = runs(world, function, "data_migration", {"source": "s"})
    assert offsets == [(0, 1000), (1000, 1000)]
    assert flow["tasks"][-1]["outputData"] == {"status": "completed", "total_migrated": 1007}


@promise(DOCUMENT, 14, "gives up after ten polls that found nothing to finish")
def _(block, world):
    polls = []
    function = functions(world, block, is_complete=lambda: polls.append(1) or False)
    flow = runs(world, function, "retry_aware_task", {"data": {}})
    assert (flow["status"], len(polls)) == ("FAILED", 10)
    assert flow["tasks"][-1]["reasonForIncompletion"] == "Task exceeded maximum retry limit"
    return "ten executions, the eleventh raises"


def pauses(block, world):
    """Every line is a pause that the server keeps as it is written."""
    tree = ast.parse("def f():\n" + textwrap.indent(block.code, "    "))
    seconds = [node.value.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "callback_after_seconds"]
    for pause in seconds:
        @conductor.worker_task("pausing")
        def pausing():
            return conductor.TaskInProgress(callback_after_seconds=pause)

        world.define("pausing")
        with world.working(pausing):
            flow_id = world.start("pausing")
            task = eventually(lambda: (lambda t: t.get("callbackAfterSeconds") and t)(world.task(flow_id)))
            assert (task["callbackAfterSeconds"], task["pollCount"]) == (pause, 1)
        world.workflows.terminate_workflow(flow_id)
    return f"{seconds} s on the server"


@promise(DOCUMENT, 15, "the task comes back after that many seconds")
def _(block, world):
    return pauses(block, world)


@promise(DOCUMENT, 16, "waits for an approval; a rejection fails the task")
def _(block, world):
    answers = iter(["PENDING", "PENDING", "APPROVED"])
    function = functions(world, block, check_approval_system=lambda _: next(answers, "REJECTED"))
    flow = runs(world, function, "wait_for_approval", {"request_id": "r"})
    assert (flow["status"], flow["tasks"][-1]["pollCount"]) == ("COMPLETED", 3)
    assert flow["tasks"][-1]["outputData"]["status"] == "approved"
    flow = runs(world, function, "wait_for_approval", {"request_id": "r"})
    assert flow["status"] == "FAILED" and "REJECTED" in flow["tasks"][-1]["reasonForIncompletion"]


@promise(DOCUMENT, 17, "sends every batch once, the first one too, and logs")
def _(block, world):
    offsets = []

    def get_emails(campaign_id, offset, limit):
        offsets.append(offset)
        return ["x"] * (limit if offset < 200 else 5)

    function = functions(world, block, get_emails=get_emails, send_emails=len)
    flow = runs(world, function, "bulk_email_sender", {"campaign_id": "c"})
    task = flow["tasks"][-1]
    assert offsets == [0, 100, 200] and task["outputData"] == {"status": "completed", "total_sent": 205}
    logs = world.configuration.connect().tasks("GET", f"/tasks/{task['taskId']}/log", None)
    assert [line["log"] for line in logs] == ["Sent batch 0: 100 emails", "Sent batch 1: 100 emails"]


@promise(DOCUMENT, 18, "an async function trains every epoch once, from epoch 0 on")
def _(block, world):
    trained = []

    async def train_one_epoch(config, epoch):
        trained.append(epoch)
        return {"loss": 0.1, "accuracy": 0.9}

    names = {"train_one_epoch": train_one_epoch, "save_checkpoint": lambda *_: None, "load_checkpoint": lambda _: stand_ins.Thing}
    function = functions(world, block, **names)
    flow = runs(world, function, "ml_model_training", {"config": {"epochs": 2}})
    assert trained == [0, 1] and flow["tasks"][-1]["outputData"] == {"model_id": "m-1", "accuracy": 0.9}


@promise(DOCUMENT, 19, "extension is on when the code says so, unless the environment says no")
def _(block, world):
    worker = functions(world, block)._tenure_worker
    assert worker.resolved({}).lease_extend_enabled is True
    assert worker.resolved({"conductor.worker.my_task.lease_extend_enabled": "false"}).lease_extend_enabled is False


@promise(DOCUMENT, 20, "the task comes back after five minutes")
def _(block, world):
    return pauses(block, world)


@promise(DOCUMENT, 21, "ends when there is nothing left, or after a hundred polls")
def _(block, world):
    answers = iter([False, True])
    function = functions(world, block, is_complete=lambda: next(answers))
    flow = runs(world, function, "my_task", {"data": {}})
    assert (flow["status"], flow["tasks"][-1]["pollCount"]) == ("COMPLETED", 2)

    class Polled:
        """The hundred and first poll."""

        get_poll_count = staticmethod(lambda: 101)

    hundred = functions(world, block, is_complete=lambda: False)
    hundred.__globals__["get_task_context"] = lambda: Polled
    try:
        hundred({})
    except Exception as error:
        assert str(error) == "Task exceeded maximum iterations"
    else:
        raise AssertionError("it went on")


@promise(DOCUMENT, 22, "one poll that finds something and one update per iteration")
def _(block, world):
    @conductor.worker_task("four_times")
    def four_times():
        polls = conductor.get_task_context().get_poll_count()
        return conductor.TaskInProgress(callback_after_seconds=1) if polls < 3 else {}

    flow = runs(world, four_times, "four_times", {})
    assert flow["tasks"][-1]["pollCount"] == 4
    return "four iterations: four polls and four updates, beside the polls that find nothing"
