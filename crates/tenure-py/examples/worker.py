"""Workers: one computes for longer than its response timeout, the other works in pieces.

    tenure serve &
    python worker.py
"""

import time

from tenure.conductor import (
    MetadataClient,
    TaskDef,
    TaskHandler,
    TaskInProgress,
    WorkflowClient,
    get_task_context,
    worker_task,
)


@worker_task(task_definition_name="resize")
def resize(path: str) -> dict:
    end = time.monotonic() + 1.5  # the response timeout is a second; a native thread extends the lease
    while time.monotonic() < end:
        pass
    return {"path": path}


@worker_task(task_definition_name="count_colours")
def count_colours(path: str):
    piece = get_task_context().get_poll_count()  # 0 on the first poll
    if piece < 2:
        return TaskInProgress(callback_after_seconds=0, output={"colours": 100 * piece})
    return {"colours": 100 * piece}


def step(name: str, path: str) -> dict:
    return {"name": name, "taskReferenceName": name, "type": "SIMPLE", "inputParameters": {"path": path}}


def main() -> None:
    metadata, workflows = MetadataClient(), WorkflowClient()
    for name in ("resize", "count_colours"):
        metadata.register_task_def(TaskDef(name, response_timeout_seconds=1, retry_count=0))
    tasks = [step("resize", "${workflow.input.path}"), step("count_colours", "${resize.output.path}")]
    metadata.register_workflow_def({"name": "pictures", "version": 1, "schemaVersion": 2, "tasks": tasks})

    workflow_id = workflows.start_workflow("pictures", {"path": "a.png"})
    with TaskHandler():
        while workflows.get_workflow(workflow_id)["status"] == "RUNNING":
            time.sleep(0.05)
    print(workflow_id, workflows.get_workflow(workflow_id)["status"])


if __name__ == "__main__":
    main()
