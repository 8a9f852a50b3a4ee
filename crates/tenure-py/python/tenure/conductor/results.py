"""What a function makes of its task, in the shape the worker sends."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Mapping, Optional

from .._seconds import whole_seconds
from .context.task_context import TaskInProgress

__all__ = ["NonRetryableException", "TaskResult", "TaskResultStatus", "describe", "describe_failure"]


class NonRetryableException(Exception):
    """Raised by a function for which trying again is of no use."""


class TaskResultStatus(str, enum.Enum):
    """How a task ended, or that it did not."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    FAILED_WITH_TERMINAL_ERROR = "FAILED_WITH_TERMINAL_ERROR"
    IN_PROGRESS = "IN_PROGRESS"


@dataclasses.dataclass
class TaskResult:
    """A result with everything said.

    Of a task in progress, `callback_after_seconds` hands it out again after that. `extend_lease` without it keeps the
    task: it is not handed out, and it is for somebody else to answer it within the response timeout, counted from now.
    Only what was reported before is kept then, not `output_data`.

    The output of a failure takes the place of what was reported before; without one, that stays.
    """

    task_id: str = ""
    workflow_instance_id: str = ""
    status: TaskResultStatus = TaskResultStatus.COMPLETED
    output_data: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason_for_incompletion: Optional[str] = None
    callback_after_seconds: int = 0
    extend_lease: bool = False
    worker_id: Optional[str] = None

    def to_dict(self) -> dict[str, Any]:
        """As it is sent to the server."""
        body: dict[str, Any] = {
            "taskId": self.task_id,
            "workflowInstanceId": self.workflow_instance_id,
            "status": TaskResultStatus(self.status).value,
            "outputData": self.output_data,
            "extendLease": self.extend_lease,
        }
        if self.callback_after_seconds:
            body["callbackAfterSeconds"] = self.callback_after_seconds
        if self.reason_for_incompletion is not None:
            body["reasonForIncompletion"] = self.reason_for_incompletion
        if self.worker_id is not None:
            body["workerId"] = self.worker_id
        return body


def describe(given: Any) -> dict[str, Any]:
    """What a function returned."""
    if isinstance(given, TaskInProgress):
        return _in_progress(given.callback_after_seconds, given.output)
    if isinstance(given, TaskResult):
        return _result(given)
    return {"outcome": "completed", "output": _output(given)}


def _result(given: TaskResult) -> dict[str, Any]:
    status, output = TaskResultStatus(given.status), dict(given.output_data or {})
    if status is TaskResultStatus.COMPLETED:
        return {"outcome": "completed", "output": output}
    if status is TaskResultStatus.IN_PROGRESS:
        keeps = given.extend_lease and not given.callback_after_seconds
        return {"outcome": "kept"} if keeps else _in_progress(given.callback_after_seconds, output)
    for_good = status is TaskResultStatus.FAILED_WITH_TERMINAL_ERROR
    reason = given.reason_for_incompletion or ""
    return {"outcome": "failed_for_good" if for_good else "failed", "reason": reason, "output": output}


def describe_failure(error: BaseException) -> dict[str, Any]:
    """What a function raised."""
    reason = str(error.args[0]) if error.args else type(error).__name__
    return {"outcome": "failed_for_good" if isinstance(error, NonRetryableException) else "failed", "reason": reason}


def _in_progress(seconds: float, output: Mapping[str, Any]) -> dict[str, Any]:
    after = max(0, whole_seconds("callback_after_seconds", seconds))
    return {"outcome": "in_progress", "callback_after": after, "output": dict(output)}


def _output(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return dataclasses.asdict(given)
    return {"result": given}
