"""What a running function knows of its task."""

from .task_context import TaskContext, TaskInProgress, get_task_context

__all__ = ["TaskContext", "TaskInProgress", "get_task_context"]
