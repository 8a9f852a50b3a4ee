"""The clients of conductor-python: definitions, runs and their control; and requests that are wrong."""

import json
import urllib.error
import urllib.request

import pytest
from conductor.client.http.models.start_workflow_request import StartWorkflowRequest
from conductor.client.http.rest import ApiException
from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.executor.workflow_executor import WorkflowExecutor
from conductor.client.workflow.task.simple_task import simple_task
from conductor.client.workflow.task.switch_task import SwitchTask
from conductor_kit import until


def request(url, method, path, body=None, raw=None):
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url + path, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_definitions_are_registered_read_back_and_forgotten(conductor):
    conductor.define("a", retry_count=2, response_timeout_seconds=9, timeout_seconds=60, timeout_policy="RETRY")
    found = conductor.metadata.get_task_def("a")
    assert (found["responseTimeoutSeconds"] if isinstance(found, dict) else found.response_timeout_seconds) == 9
    conductor.line("wf", "a")
    assert conductor.metadata.get_workflow_def("wf").tasks[0].name == "a"
    assert any(definition.name == "wf" for definition in conductor.metadata.get_all_workflow_defs())
    conductor.metadata.unregister_workflow_def("wf", 1)
    conductor.metadata.unregister_task_def("a")
    with pytest.raises(ApiException):
        conductor.metadata.get_workflow_def("wf")


def test_a_workflow_of_five_tasks_with_a_fork_runs_with_the_executor(conductor, workers):
    conductor.define("quick")
    executor = WorkflowExecutor(conductor.configuration)
    workflow = ConductorWorkflow(executor=executor, name="forked", version=1)
    tasks = [simple_task("quick", f"t{at}", {"x": at}) for at in range(5)]
    workflow >> tasks[0] >> [[tasks[1]], [tasks[2], tasks[3]]] >> tasks[4]
    workflow.register(overwrite=True)
    workers("quick:4")
    id = executor.start_workflow(StartWorkflowRequest(name="forked", version=1, input={}))
    run = conductor.ended(id, 40)
    assert run.status == "COMPLETED", run.reason_for_incompletion
    assert {task.reference_task_name for task in run.tasks} >= {"t0", "t1", "t2", "t3", "t4"}


def test_a_switch_takes_the_way_its_input_says(conductor, workers):
    conductor.define("quick")
    executor = WorkflowExecutor(conductor.configuration)
    workflow = ConductorWorkflow(executor=executor, name="switched", version=1)
    switch = SwitchTask("choose", "${workflow.input.way}")
    switch.switch_case("left", [simple_task("quick", "left", {"x": 1})])
    switch.switch_case("right", [simple_task("quick", "right", {"x": 2})])
    workflow >> switch
    workflow.register(overwrite=True)
    workers("quick")
    id = executor.start_workflow(StartWorkflowRequest(name="switched", version=1, input={"way": "right"}))
    assert conductor.ended(id, 40).output == {"x": 2}


def test_runs_are_paused_resumed_terminated_retried_restarted_and_found(conductor):
    conductor.define("a")
    conductor.line("wf", "a", "a")
    id = conductor.workflows.start_workflow(
        StartWorkflowRequest(name="wf", version=1, input={}, correlation_id="order-7")
    )
    conductor.workflows.pause_workflow(id)
    assert conductor.run(id).status == "PAUSED"
    conductor.workflows.resume_workflow(id)
    task = conductor.tasks.poll_task("a", worker_id="w")
    assert task.workflow_instance_id == id
    conductor.workflows.terminate_workflow(id, "enough")
    run = conductor.run(id)
    assert (run.status, run.reason_for_incompletion, run.tasks[0].status) == ("TERMINATED", "enough", "CANCELED")
    conductor.workflows.retry_workflow(id)
    assert conductor.run(id).status == "RUNNING"
    conductor.workflows.terminate_workflow(id, "again")
    conductor.workflows.restart_workflow(id)
    assert conductor.run(id).status == "RUNNING" and len(conductor.run(id).tasks) == 1
    found = conductor.workflows.search(query='correlationId="order-7"')
    assert [one.workflow_id for one in found.results] == [id]
    conductor.workflows.terminate_workflow(id, "end")
    conductor.workflows.delete_workflow(id)
    with pytest.raises(ApiException):
        conductor.run(id)


def test_what_is_wrong_is_refused_in_words_and_never_a_server_error(server, conductor):
    conductor.define("a")
    conductor.line("wf", "a")
    id = conductor.start("wf")
    task = conductor.tasks.poll_task("a", worker_id="w").task_id
    update = {"workflowInstanceId": id, "taskId": task, "status": "COMPLETED"}
    for method, path, body, status in [
        ("POST", "/api/tasks", {**update, "taskId": ""}, 400),
        ("POST", "/api/tasks", {**update, "status": None}, 400),
        ("POST", "/api/tasks", {**update, "status": "TIMED_OUT"}, 400),
        ("POST", "/api/tasks", {**update, "outputData": [1]}, 400),
        ("POST", "/api/tasks", {**update, "taskId": "nobody"}, 404),
        ("POST", "/api/tasks", {**update, "taskId": 7}, 400),
        ("POST", "/api/tasks/update-v2", {**update, "taskId": "nobody"}, 204),
        ("POST", "/api/tasks/update-v2", {**update, "taskId": "t-9999-1"}, 204),
        ("POST", "/api/tasks/update-v2", [], 400),
        ("POST", "/api/workflow", {"name": "nobody"}, 404),
        ("POST", "/api/workflow", {"name": "wf", "input": []}, 400),
        ("POST", "/api/workflow", {"name": "wf", "priority": 100}, 400),
        ("GET", "/api/workflow/nobody", None, 404),
        ("GET", "/api/workflow/w-1-1", None, 404),
        ("GET", "/api/tasks/poll/batch/a?timeout=5001", None, 400),
        ("GET", "/api/tasks/poll/batch/a?count=x", None, 400),
        ("POST", "/api/metadata/taskdefs", [{"name": ""}], 400),
        ("POST", "/api/metadata/taskdefs", [{"name": "x", "responseTimeoutSeconds": 0}], 400),
        ("POST", "/api/metadata/taskdefs", [{"name": "x", "responseTimeoutSeconds": 9, "timeoutSeconds": 5}], 400),
        ("POST", "/api/metadata/taskdefs", {"name": "x"}, 400),
        ("POST", "/api/metadata/workflow", {"name": "x", "tasks": []}, 400),
        ("POST", "/api/metadata/workflow", {"name": "x", "tasks": [{"name": "h", "taskReferenceName": "h", "type": "HTTP"}]}, 400),
        ("POST", "/api/nobody", {}, 404),
    ]:
        answered, text = request(server.url, method, path, body)
        assert answered == status, f"{method} {path} {body}: {answered} {text}"
    status, text = request(server.url, "POST", "/api/tasks", raw=b'{"taskId": "\xff"}')
    assert status == 400
    status, text = request(server.url, "POST", "/api/tasks", raw=b" " * (10 * 1024 * 1024 + 128 * 1024))
    assert status == 413 and json.loads(text)["status"] == 413


def test_loops_scripts_waits_and_inner_workflows(server, conductor):
    call = lambda method, path, body=None: request(server.url, method, path, body)  # noqa: E731
    conductor.line("inner", "a")
    definition = {
        "name": "all", "version": 1, "tasks": [
            {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopCondition": "$.l['iteration'] < 3",
             "loopOver": [{"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters":
                           {"expression": "(function(){ return $.n + 1; })()", "n": "${l.output.iteration}"}}]},
            {"name": "w", "taskReferenceName": "w", "type": "WAIT", "inputParameters": {"duration": "1s"}},
            {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "inner"}},
            {"name": "h", "taskReferenceName": "h", "type": "HUMAN"},
            {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "tasks",
             "dynamicForkTasksInputParamName": "inputs", "inputParameters": {
                 "tasks": [{"name": "a", "taskReferenceName": "x"}, {"name": "a", "taskReferenceName": "y"}],
                 "inputs": {"x": {"v": 1}, "y": {"v": 2}}}},
            {"name": "j", "taskReferenceName": "j", "type": "JOIN"},
        ], "outputParameters": {"rounds": "${l.output.iteration}", "last": "${i.output.result}", "joined": "${j.output}"},
    }
    assert call("POST", "/api/metadata/workflow", definition)[0] == 200
    id = call("POST", "/api/workflow", {"name": "all"})[1]

    def work():
        tasks = json.loads(call("GET", "/api/tasks/poll/batch/a?workerid=w&count=9&timeout=100")[1])
        for task in tasks:
            result = {"workflowInstanceId": id, "taskId": task["taskId"], "workerId": "w", "status": "COMPLETED"}
            call("POST", "/api/tasks", {**result, "outputData": task["inputData"]})
        return tasks

    until(work, 10, "the inner workflow's task")
    assert call("POST", f"/api/tasks/{id}/h/COMPLETED", {"ok": True})[1].startswith("t-")
    until(lambda: len(work()) == 2, 10, "the tasks of the fork")
    run = until(lambda: (run := json.loads(call("GET", f"/api/workflow/{id}")[1]))["status"] != "RUNNING" and run)
    assert run["status"] == "COMPLETED", run.get("reasonForIncompletion")
    assert run["output"] == {"rounds": 3, "last": 4, "joined": {"x": {"v": 1}, "y": {"v": 2}}}
