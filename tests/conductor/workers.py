"""The patterns of lease extension as real workers. Run with the names of the workers to start."""

import asyncio
import os
import sys
import time
from typing import Union

from conductor.client.automator.task_handler import TaskHandler
from conductor.client.configuration.configuration import Configuration
from conductor.client.context.task_context import TaskInProgress, get_task_context
from conductor.client.worker.worker import Worker


def long_task(seconds: float) -> dict:
    """Runs longer than its response timeout."""
    time.sleep(seconds)
    return {"slept": seconds, "pid": os.getpid()}


def batch(total: int) -> Union[dict, TaskInProgress]:
    """A hundred items for each poll; the wire counts polls from one."""
    done = (get_task_context().get_poll_count()) * 100
    if done >= total:
        return {"status": "completed", "total_processed": done}
    get_task_context().add_log(f"did {done}")
    return TaskInProgress(callback_after_seconds=1, output={"progress": done})


def quick(x: int) -> dict:
    return {"x": x}


def limited() -> Union[dict, TaskInProgress]:
    """Gives up after three polls."""
    if get_task_context().get_poll_count() >= 3:
        raise Exception("Task exceeded maximum retry limit")
    return TaskInProgress(callback_after_seconds=0)


async def epochs(config: dict) -> Union[dict, TaskInProgress]:
    """One epoch for each poll."""
    epoch = get_task_context().get_poll_count()
    await asyncio.sleep(0.05)
    if epoch > config["epochs"]:
        return {"trained": epoch - 1}
    get_task_context().add_log(f"Training epoch {epoch}")
    return TaskInProgress(callback_after_seconds=0, output={"epoch": epoch})


async def async_long(seconds: float) -> dict:
    await asyncio.sleep(seconds)
    return {"slept": seconds}


def fails() -> dict:
    raise Exception("Request rejected: REJECTED")


EXTENDED = {"long_task", "async_long"}

if __name__ == "__main__":
    workers = []
    for name in sys.argv[1:]:
        name, _, threads = name.partition(":")
        workers.append(
            Worker(
                task_definition_name=name,
                execute_function=globals()[name],
                thread_count=int(threads or 1),
                lease_extend_enabled=name in EXTENDED,
                worker_id=os.environ.get("WORKER_ID"),
            )
        )
    configuration = Configuration(server_api_url=os.environ["CONDUCTOR_SERVER_URL"])
    with TaskHandler(workers=workers, configuration=configuration, scan_for_annotated_workers=False) as handler:
        handler.start_processes()
        handler.join_processes()
