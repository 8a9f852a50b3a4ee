"""Workers: settings, results, extension, and what happens when a task's lease is lost."""

import asyncio
import itertools
import signal
import threading
import time

import pytest
from sdk_support import Program
from tenure.conductor import (
    Configuration,
    MetadataClient,
    NonRetryableException,
    TaskHandler,
    TaskInProgress,
    TaskResult,
    TaskResultStatus,
    Worker,
    WorkflowClient,
    get_task_context,
    worker_task,
)
from tenure.conductor.settings import environment_names
from tenure.exceptions import LeaseLost
from tenure_process import eventually

NAMES = environment_names("my_task", "lease_extend_enabled")


@pytest.mark.parametrize("strong, weak", list(itertools.combinations(NAMES, 2)))
def test_of_two_names_the_stronger_one_decides(strong, weak):
    worker = Worker("my_task", print)
    assert worker.resolved({strong: "false", weak: "true"}).lease_extend_enabled is False
    assert worker.resolved({strong: "true", weak: "false"}).lease_extend_enabled is True


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_stronger_than_the_code(name):
    assert Worker("my_task", print, lease_extend_enabled=True).resolved({name: "off"}).lease_extend_enabled is False
    assert Worker("my_task", print, lease_extend_enabled=False).resolved({name: "YES"}).lease_extend_enabled is True


def test_extension_is_on_by_default_and_other_settings_have_their_types():
    worker = Worker("my_task", print)
    assert worker.resolved({}).lease_extend_enabled is True
    environment = {"CONDUCTOR_WORKER_MY_TASK_THREAD_COUNT": "7", "conductor_worker_all_domain": "dev"}
    resolved = worker.resolved(environment)
    assert (resolved.thread_count, resolved.domain) == (7, "dev")
    with pytest.raises(ValueError, match="THREAD_COUNT must be a whole number"):
        worker.resolved({"CONDUCTOR_WORKER_MY_TASK_THREAD_COUNT": "many"})


def test_there_is_no_task_outside_of_a_task():
    with pytest.raises(RuntimeError, match="there is no task here"):
        get_task_context()


class World:
    def __init__(self, server):
        self.configuration = Configuration(f"{server.url}/api")
        self.metadata, self.workflows = MetadataClient(self.configuration), WorkflowClient(self.configuration)

    def start(self, name, inputs=None, **rules):
        self.metadata.register_task_def({"name": name, "retryCount": 0, "responseTimeoutSeconds": 30, **rules})
        parameters = {key: f"${{workflow.input.{key}}}" for key in inputs or ()}
        step = {"name": name, "taskReferenceName": "it", "type": "SIMPLE", "inputParameters": parameters}
        self.metadata.register_workflow_def({"name": f"only_{name}", "version": 1, "schemaVersion": 2, "tasks": [step]})
        return self.workflows.start_workflow(f"only_{name}", inputs)

    def working(self, *functions):
        return TaskHandler([function._tenure_worker for function in functions], self.configuration, drain_seconds=2)

    def tasks(self, flow_id):
        return self.workflows.get_workflow(flow_id)["tasks"]

    def ended(self, flow_id):
        over = lambda flow: flow["status"] not in ("RUNNING", "PAUSED") and flow
        return eventually(lambda: over(self.workflows.get_workflow(flow_id)), what="the workflow has ended")


@pytest.fixture
def world(server):
    return World(server)


def test_parameters_come_from_the_input_by_name(world):
    @worker_task("add")
    def add(a, b=10, **rest):
        return {"sum": a + b, "rest": rest}

    flow = world.start("add", {"a": 1, "c": 3})
    with world.working(add):
        assert world.ended(flow)["tasks"][0]["outputData"] == {"sum": 11, "rest": {"c": 3}}


def test_a_failure_says_why_and_a_hopeless_one_is_not_repeated(world):
    @worker_task("fails")
    def fails():
        raise ValueError("out of paper")

    @worker_task("hopeless")
    def hopeless():
        raise NonRetryableException("wrong number")

    repeated = world.start("fails", retryCount=1, retryDelaySeconds=0)
    once = world.start("hopeless", retryCount=5, retryDelaySeconds=0)
    with world.working(fails, hopeless):
        tasks = world.ended(repeated)["tasks"]
        assert [task["reasonForIncompletion"] for task in tasks] == ["out of paper"] * 2
        [task] = world.ended(once)["tasks"]
        assert (task["status"], task["reasonForIncompletion"]) == ("FAILED_WITH_TERMINAL_ERROR", "wrong number")


def test_a_new_attempt_gets_the_checkpoint_of_the_former_one(world):
    seen = []

    @worker_task("resumes")
    def resumes():
        context = get_task_context()
        seen.append((context.get_retry_count(), context.get_poll_count(), context.get_checkpoint()))
        if context.get_retry_count() == 0 and context.get_poll_count() == 0:
            return TaskInProgress(callback_after_seconds=0, output={"at": 5})
        if context.get_retry_count() == 0:
            raise ValueError("crash")
        return context.get_checkpoint()

    flow = world.start("resumes", retryCount=1, retryDelaySeconds=0)
    with world.working(resumes):
        world.ended(flow)
    assert seen == [(0, 0, {}), (0, 1, {"at": 5}), (1, 0, {"at": 5})]


@pytest.mark.parametrize("status", [TaskResultStatus.FAILED, TaskResultStatus.FAILED_WITH_TERMINAL_ERROR])
def test_the_output_of_a_failed_result_is_stored(world, status):
    @worker_task("explains")
    def explains():
        return TaskResult(status=status, output_data={"why": "details"}, reason_for_incompletion="no")

    flow = world.start("explains")
    with world.working(explains):
        [task] = world.ended(flow)["tasks"]
    said = (task["status"], task["reasonForIncompletion"], task["outputData"])
    assert said == (status.value, "no", {"why": "details"})


def test_a_failed_result_without_output_leaves_what_was_reported(world):
    @worker_task("half")
    def half():
        if get_task_context().get_poll_count() == 0:
            return TaskInProgress(callback_after_seconds=0, output={"at": 5})
        return TaskResult(status=TaskResultStatus.FAILED)

    flow = world.start("half")
    with world.working(half):
        [task] = world.ended(flow)["tasks"]
    assert task["outputData"] == {"at": 5}


def test_a_task_that_is_kept_is_not_handed_out_again_and_somebody_else_answers_it(world):
    kept = []

    @worker_task("delegates")
    def delegates(keep):
        if not keep:
            return {}
        kept.append(get_task_context())
        return TaskResult(status=TaskResultStatus.IN_PROGRESS, extend_lease=True)

    flow = world.start("delegates", {"keep": True})
    with world.working(delegates):
        eventually(lambda: kept, what="the first task runs")
        # The only slot is free for the next one.
        assert world.ended(world.start("delegates", {"keep": False}))["status"] == "COMPLETED"
        [task] = world.tasks(flow)
        assert (task["status"], task["pollCount"], len(kept)) == ("IN_PROGRESS", 1, 1)
        answer = TaskResult(task["taskId"], flow, output_data={"by": "somebody else"})
        world.metadata._native.tasks("POST", "/tasks", answer.to_dict())
        assert world.ended(flow)["tasks"][0]["outputData"] == {"by": "somebody else"}


def test_a_task_that_is_kept_and_never_answered_times_out(world):
    @worker_task("forgets")
    def forgets():
        return TaskResult(status=TaskResultStatus.IN_PROGRESS, extend_lease=True)

    flow = world.start("forgets", responseTimeoutSeconds=1)
    with world.working(forgets):
        [task] = world.ended(flow)["tasks"]
    assert (task["status"], task["pollCount"]) == ("TIMED_OUT", 1)


def test_a_function_without_extension_is_stopped_when_its_lease_is_lost(world):
    told = threading.Event()

    @worker_task("too_slow", lease_extend_enabled=False)
    def too_slow():
        try:
            while True:
                sum(range(1000))
        except LeaseLost:
            told.set()
            raise

    flow = world.start("too_slow", responseTimeoutSeconds=1)
    with world.working(too_slow):
        assert told.wait(20)
        assert world.tasks(flow)[0]["status"] == "IN_PROGRESS", "told before the server took it back"
        assert world.ended(flow)["tasks"][0]["status"] == "TIMED_OUT"


def test_an_async_function_is_cancelled_when_its_lease_is_lost(world):
    told = threading.Event()

    @worker_task("too_slow", lease_extend_enabled=False)
    async def too_slow():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.set()
            raise

    flow = world.start("too_slow", responseTimeoutSeconds=1)
    with world.working(too_slow):
        assert told.wait(20)
        assert world.ended(flow)["tasks"][0]["status"] == "TIMED_OUT"


def test_several_run_at_the_same_time_and_no_more_than_allowed(world):
    running, most, lock = [0], [0], threading.Lock()

    @worker_task("parallel", thread_count=3)
    def parallel():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.2)
        with lock:
            running[0] -= 1

    flows = [world.start("parallel") for _ in range(9)]
    with world.working(parallel):
        for flow in flows:
            assert world.ended(flow)["status"] == "COMPLETED"
    assert most[0] == 3


def test_a_result_that_json_cannot_say_is_a_failure(world):
    @worker_task("odd")
    def odd():
        return {"what": object()}

    flow = world.start("odd")
    with world.working(odd):
        [task] = world.ended(flow)["tasks"]
    assert task["status"] == "FAILED" and "not JSON serializable" in task["reasonForIncompletion"]


def test_a_result_whose_output_is_no_object_is_a_failure(world):
    @worker_task("listed")
    def listed():
        return TaskResult(output_data=[1, 2])

    flow = world.start("listed")
    with world.working(listed):
        assert world.ended(flow)["status"] == "FAILED"


def test_a_callback_that_is_no_number_of_seconds_is_a_failure_that_names_it(world):
    @worker_task("some_day")
    def some_day():
        return TaskInProgress(callback_after_seconds=float("inf"))

    flow = world.start("some_day")
    with world.working(some_day):
        [task] = world.ended(flow)["tasks"]
    wanted = "callback_after_seconds must be a number of seconds, not inf"
    assert (task["status"], task["reasonForIncompletion"]) == ("FAILED", wanted)


def test_a_callback_between_two_seconds_is_rounded_up(wire, server):
    world = World(server)
    world.configuration = Configuration(wire.url)

    @worker_task("soon")
    def soon():
        return {} if get_task_context().get_poll_count() else TaskInProgress(callback_after_seconds=0.2)

    flow = world.start("soon")
    with world.working(soon):
        assert world.ended(flow)["status"] == "COMPLETED"
    assert b'"callbackAfterSeconds":1,' in wire.seen


def test_an_async_function_that_exits_fails_and_the_others_go_on(world):
    @worker_task("leaves")
    async def leaves():
        raise SystemExit("bye")

    @worker_task("stays")
    async def stays():
        return {"here": True}

    flow = world.start("leaves")
    with world.working(leaves, stays):
        assert "SystemExit('bye')" in world.ended(flow)["tasks"][0]["reasonForIncompletion"]
        assert world.ended(world.start("stays"))["status"] == "COMPLETED"


def test_a_time_to_drain_that_is_no_number_of_seconds_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="drain_seconds must be a number of seconds, not -1"):
        TaskHandler([Worker("any", print)], drain_seconds=-1).start_processes()


def test_a_number_that_would_not_be_kept_exactly_is_a_failure_that_names_it(world):
    @worker_task("huge")
    def huge():
        return {"n": 2**70 + 1}

    flow = world.start("huge")
    with world.working(huge):
        [task] = world.ended(flow)["tasks"]
    assert task["status"] == "FAILED" and f"{2**70 + 1} does not fit" in task["reasonForIncompletion"]


def test_the_lease_is_extended_at_four_fifths_of_the_response_timeout(wire, server):
    world = World(server)
    world.configuration = Configuration(wire.url)

    @worker_task("steady")
    def steady():
        time.sleep(3.4)

    flow = world.start("steady", responseTimeoutSeconds=2)
    beats = lambda: bytes(wire.seen).count(b'"extendLease":true') + bytes(wire.seen).count(b"/renew ")
    with world.working(steady):
        assert world.ended(flow)["status"] == "COMPLETED"
    assert beats() == 2, "at 1.6 s and at 3.2 s"


def test_a_function_whose_workflow_is_terminated_is_stopped_and_can_ask_why(world):
    began, told, lost = threading.Event(), threading.Event(), []

    @worker_task("unwanted")
    def unwanted():
        began.set()
        try:
            while True:
                sum(range(1000))
        except LeaseLost:
            lost.append(get_task_context().lost)
            told.set()
            raise

    flow = world.start("unwanted", responseTimeoutSeconds=1)
    with world.working(unwanted):
        assert began.wait(20)
        world.workflows.terminate_workflow(flow, "enough")
        assert told.wait(20) and lost == [True]
    assert world.workflows.get_workflow(flow)["status"] == "TERMINATED"


def test_an_async_function_whose_workflow_is_terminated_is_cancelled(world):
    began, told = threading.Event(), threading.Event()

    @worker_task("unwanted")
    async def unwanted():
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.set()
            raise

    flow = world.start("unwanted", responseTimeoutSeconds=1)
    with world.working(unwanted):
        assert began.wait(20)
        world.workflows.terminate_workflow(flow, "enough")
        assert told.wait(20)


STOPPED = """
    import sys
    from tenure.conductor import Configuration, TaskHandler, get_task_context, worker_task
    from tenure.exceptions import LeaseLost

    @worker_task("stopped")
    def stopped():
        try:
            print("began", flush=True)
            while True:
                sum(range(1000))
        except LeaseLost:
            print("told:", get_task_context().lost, flush=True)
            raise

    with TaskHandler(configuration=Configuration(sys.argv[1])):
        sys.stdin.readline()
"""


def test_a_stopped_worker_loses_its_task_and_its_function_is_told_when_it_goes_on(server, world):
    flow = world.start("stopped", responseTimeoutSeconds=1)
    with Program(STOPPED, server.url) as program:
        assert program.line() == "began"
        program.process.send_signal(signal.SIGSTOP)
        assert world.ended(flow)["tasks"][0]["status"] == "TIMED_OUT"
        program.process.send_signal(signal.SIGCONT)
        assert program.line() == "told: True"
        assert program.end()[0] == 0
    assert [task["status"] for task in world.tasks(flow)] == ["TIMED_OUT"]
