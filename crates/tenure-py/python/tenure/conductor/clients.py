"""Definitions and workflows."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Union
from urllib.parse import quote

from .. import _native
from ..client import this_process

__all__ = ["Configuration", "MetadataClient", "TaskDef", "WorkflowClient"]


class Configuration:
    """Where the server is. `server_api_url` may end with `/api`; else `CONDUCTOR_SERVER_URL`, else `TENURE_URL`."""

    def __init__(self, server_api_url: Optional[str] = None, *, api_key: Optional[str] = None):
        url = server_api_url or os.environ.get("CONDUCTOR_SERVER_URL") or os.environ.get("TENURE_URL")
        self.url = (url or _native.DEFAULT_URL).rstrip("/").removesuffix("/api")
        self.api_key = api_key or os.environ.get("TENURE_API_KEY") or None

    def connect(self, worker_id: Optional[str] = None) -> "_native.Client":
        """A connection in the name of a worker."""
        return _native.Client(self.url, self.api_key, worker_id or this_process(), None, None, False)


@dataclasses.dataclass
class TaskDef:
    """How a kind of task is leased, timed and retried. What is not said has the server's default."""

    name: str
    response_timeout_seconds: Optional[int] = None
    timeout_seconds: Optional[int] = None
    total_timeout_seconds: Optional[int] = None
    timeout_policy: Optional[str] = None
    retry_count: Optional[int] = None
    retry_logic: Optional[str] = None
    retry_delay_seconds: Optional[int] = None
    description: Optional[str] = None

    def to_dict(self) -> dict[str, Any]:
        """As it is sent to the server."""
        said = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return {_camel(name): value for name, value in said.items()}


class MetadataClient:
    """Definitions of tasks and workflows."""

    def __init__(self, configuration: Optional[Configuration] = None):
        self._native = (configuration or Configuration()).connect()

    def register_task_def(self, definition: Union[TaskDef, Mapping[str, Any]]) -> None:
        """Makes a definition, or replaces it."""
        self._native.tasks("POST", "/metadata/taskdefs", [_plain(definition)])

    def get_task_def(self, name: str) -> Mapping[str, Any]:
        return self._native.tasks("GET", f"/metadata/taskdefs/{quote(name, safe='')}", None)

    def register_workflow_def(self, definition: Mapping[str, Any]) -> None:
        """Makes a definition, or replaces it."""
        self._native.tasks("PUT", "/metadata/workflow", [dict(definition)])


class WorkflowClient:
    """Workflows that run."""

    def __init__(self, configuration: Optional[Configuration] = None):
        self._native = (configuration or Configuration()).connect()

    def start_workflow(
        self, name: str, input: Optional[Mapping[str, Any]] = None, *, version: Optional[int] = None
    ) -> str:
        """Starts a workflow; its id."""
        body: dict[str, Any] = {"name": name, "input": dict(input or {})}
        if version is not None:
            body["version"] = version
        return self._native.tasks("POST", "/workflow", body)

    def get_workflow(self, workflow_id: str, include_tasks: bool = True) -> Mapping[str, Any]:
        flag = "true" if include_tasks else "false"
        return self._native.tasks("GET", f"/workflow/{quote(workflow_id, safe='')}?includeTasks={flag}", None)

    def terminate_workflow(self, workflow_id: str, reason: str = "") -> None:
        self._native.tasks("DELETE", f"/workflow/{quote(workflow_id, safe='')}?reason={quote(reason)}", None)

    def get_task(self, task_id: str) -> Mapping[str, Any]:
        return self._native.tasks("GET", f"/tasks/{quote(task_id, safe='')}", None)


def _plain(definition: Union[TaskDef, Mapping[str, Any]]) -> dict[str, Any]:
    return definition.to_dict() if isinstance(definition, TaskDef) else dict(definition)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
