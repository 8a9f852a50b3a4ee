"""Running the functions of users for the native half: in threads or on an event loop, and stopping them when told."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import Any, Callable, Coroutine, Optional

from .exceptions import LeaseLost
from .lease import _Thread

#: Gets the future of a piece of work that has ended.
_Done = Callable[["concurrent.futures.Future[Any]"], None]

#: How long an event loop may take to end what was cancelled.
_LOOP_END_SECONDS = 5.0


class Job:
    """Running work; `stop` tells it that its lease is lost or that there is no time left."""

    def __init__(self, stop: Callable[[], Any]):
        self.stop = stop


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]], done: _Done) -> Job:
        """Runs the coroutine; `done` gets its future, from the loop's thread. Stopping cancels its task."""
        future = asyncio.run_coroutine_threadsafe(_contained(work), self._loop)
        future.add_done_callback(done)
        return Job(future.cancel)

    def close(self) -> None:
        async def cancel_all() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        ending = asyncio.run_coroutine_threadsafe(cancel_all(), self._loop)
        try:
            ending.result(_LOOP_END_SECONDS)
        except concurrent.futures.TimeoutError:
            return  # Something there does not end; its thread is a daemon.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LOOP_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _contained(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Without the exits of the work: they would end the loop, and everybody's work with it."""
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it ended with {error!r}") from error


def start_in_thread(
    pool: concurrent.futures.Executor,
    context: contextvars.Context,
    work: Callable[[], Any],
    done: _Done,
) -> Job:
    """Runs the function in a thread of the pool; `done` gets its future. Stopping raises `LeaseLost` there."""
    future, job = _submit(pool, context, work)
    future.add_done_callback(done)
    return job


async def wait_in_thread(pool: concurrent.futures.Executor, work: Callable[[], Any]) -> Any:
    """What the function gives that runs in a thread of the pool. Cancelling raises `LeaseLost` there."""
    future, job = _submit(pool, contextvars.copy_context(), work)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        job.stop()
        raise


def _submit(
    pool: concurrent.futures.Executor, context: contextvars.Context, work: Callable[[], Any]
) -> tuple[concurrent.futures.Future[Any], Job]:
    watcher: list[_Thread] = []
    stopped = threading.Event()

    def run() -> Any:
        watcher.append(_Thread())
        try:
            if stopped.is_set():
                raise LeaseLost()
            return context.run(work)
        finally:
            watcher[0].leave()

    def stop() -> None:
        stopped.set()
        if watcher:
            watcher[0].tell("stopped")

    return pool.submit(run), Job(stop)


def failure(future: concurrent.futures.Future[Any]) -> Optional[BaseException]:
    """What the work raised; a cancellation is a lost lease."""
    if future.cancelled():
        return LeaseLost()
    return future.exception()
