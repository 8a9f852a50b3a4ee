"""What a running function knows of its task, and what it says about it."""

from __future__ import annotations

import contextvars
from typing import Any, Mapping, Optional

from ... import _native
from ...exceptions import LeaseLost

__all__ = ["TaskContext", "TaskInProgress", "get_task_context"]

_running: contextvars.ContextVar[Optional["TaskContext"]] = contextvars.ContextVar("tenure_task", default=None)


class TaskInProgress:
    """Returned by a function that is not done: hand the task out again after so many seconds, rounded up."""

    def __init__(self, callback_after_seconds: float = 60, output: Optional[Mapping[str, Any]] = None):
        self.callback_after_seconds = callback_after_seconds
        self.output: dict[str, Any] = dict(output or {})

    def __repr__(self) -> str:
        return f"TaskInProgress(callback_after_seconds={self.callback_after_seconds}, output={self.output})"


class TaskContext:
    """The task that runs in this thread or asyncio task."""

    def __init__(self, task: Mapping[str, Any], native: "_native.Context", client: "_native.Client"):
        self.task = task
        self._native = native
        self._client = client

    def get_task_id(self) -> str:
        return self.task["taskId"]

    def get_workflow_instance_id(self) -> str:
        return self.task["workflowInstanceId"]

    def get_task_def_name(self) -> str:
        return self.task.get("taskDefName", "")

    def get_input(self) -> dict[str, Any]:
        return dict(self.task.get("inputData") or {})

    def get_poll_count(self) -> int:
        """How often this task was handed out before: 0 on the first poll."""
        return self._native.poll_count

    def get_retry_count(self) -> int:
        """How many attempts were made before this one."""
        return self.task.get("retryCount", 0)

    def get_checkpoint(self) -> dict[str, Any]:
        """The last output that was reported, by this attempt or by the one it repeats: with `TaskInProgress`, or with a
        failed `TaskResult`."""
        if self.get_poll_count() > 0:
            return dict(self.task.get("outputData") or {})
        former = self.task.get("retriedTaskId")
        if not former:
            return {}
        return dict(self._client.tasks("GET", f"/tasks/{former}", None).get("outputData") or {})

    def add_log(self, line: str) -> None:
        """Keeps a line with the task; it is sent with the result."""
        self._native.add_log(str(line))

    @property
    def lost(self) -> bool:
        """Whether the lease on the task is lost: somebody else may be working on it."""
        return self._native.loss is not None

    def check(self) -> None:
        """Raises `LeaseLost` if the lease is lost."""
        if self.lost:
            raise LeaseLost(f"the lease on task {self.get_task_id()} is lost: {self._native.loss}")


def get_task_context() -> TaskContext:
    """The context of the running task. Raises `RuntimeError` outside of one."""
    context = _running.get()
    if context is None:
        raise RuntimeError("there is no task here: get_task_context works inside a function that runs for a task")
    return context
