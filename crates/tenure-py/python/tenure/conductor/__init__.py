"""Workers for polled tasks, as the guides of Conductor's SDK write them.

    from tenure.conductor import TaskHandler, worker_task

    @worker_task(task_definition_name="resize")
    def resize(path: str) -> dict:
        return {"done": path}

    with TaskHandler() as handler:
        handler.join_processes()

The lease of a task is extended by a native thread while the function runs, whatever Python is doing. When it is lost,
the function is stopped: `LeaseLost` is raised in its thread at the next bytecode, an asyncio task is cancelled.
"""

from .clients import Configuration, MetadataClient, TaskDef, WorkflowClient
from .context.task_context import TaskContext, TaskInProgress, get_task_context
from .results import NonRetryableException, TaskResult, TaskResultStatus
from .worker import TaskHandler, Worker, worker_task, workers_of

__all__ = [
    "Configuration",
    "MetadataClient",
    "NonRetryableException",
    "TaskContext",
    "TaskDef",
    "TaskHandler",
    "TaskInProgress",
    "TaskResult",
    "TaskResultStatus",
    "Worker",
    "WorkflowClient",
    "get_task_context",
    "worker_task",
    "workers_of",
]
