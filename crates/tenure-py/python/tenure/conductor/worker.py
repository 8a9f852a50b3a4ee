"""Workers: functions that run for polled tasks."""

from __future__ import annotations

import concurrent.futures
import contextvars
import dataclasses
import functools
import importlib
import inspect
import logging
import threading
from typing import Any, Callable, Iterable, Mapping, Optional

from .. import _native
from .._jobs import Job, Loop, failure, start_in_thread
from ..client import this_process
from ..exceptions import LeaseLost
from .clients import Configuration, MetadataClient, TaskDef
from .context.task_context import TaskContext, _running
from .results import describe, describe_failure
from .settings import setting

__all__ = ["TaskHandler", "Worker", "worker_task", "workers_of"]

_log = logging.getLogger("tenure.conductor")


@dataclasses.dataclass
class Worker:
    """A function and how its tasks are polled. The environment overrules what is said here; see `settings`."""

    task_definition_name: str
    function: Callable[..., Any]
    poll_interval_millis: int = 100
    domain: Optional[str] = None
    worker_id: Optional[str] = None
    thread_count: int = 1
    lease_extend_enabled: bool = True
    register_task_def: bool = False
    task_def: Optional[TaskDef] = None

    def resolved(self, environment: Optional[Mapping[str, str]] = None) -> "Worker":
        """With what the environment says."""
        name = self.task_definition_name
        read = functools.partial(setting, name, environment=environment)
        return dataclasses.replace(
            self,
            poll_interval_millis=read("poll_interval", self.poll_interval_millis),
            domain=read("domain", self.domain) or None,
            worker_id=read("worker_id", self.worker_id) or None,
            thread_count=read("thread_count", self.thread_count),
            lease_extend_enabled=read("lease_extend_enabled", self.lease_extend_enabled),
            register_task_def=read("register_task_def", self.register_task_def),
        )


_decorated: list[Worker] = []


def worker_task(
    task_definition_name: str,
    *,
    poll_interval_millis: int = 100,
    domain: Optional[str] = None,
    worker_id: Optional[str] = None,
    thread_count: int = 1,
    lease_extend_enabled: bool = True,
    register_task_def: bool = False,
    task_def: Optional[TaskDef] = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a worker of a function, `def` or `async def`. Its parameters are taken from the task's input by name.

    lease_extend_enabled  keep the task while the function runs: its lease is extended at 80 % of the response timeout,
                          by a native thread. Without it the function must be faster than the response timeout.
    thread_count          how many run at the same time
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        worker = Worker(
            task_definition_name,
            function,
            poll_interval_millis,
            domain,
            worker_id,
            thread_count,
            lease_extend_enabled,
            register_task_def,
            task_def,
        )
        _decorated.append(worker)
        function._tenure_worker = worker  # type: ignore[attr-defined]
        return function

    return decorate


def workers_of(module: Any) -> list[Worker]:
    """The decorated functions of a module or of any namespace."""
    members = module.values() if isinstance(module, Mapping) else vars(module).values()
    return [member._tenure_worker for member in members if hasattr(member, "_tenure_worker")]


class TaskHandler:
    """Polls and runs the tasks of workers, until it is stopped. One process, one native engine for all of them.

    workers         which; without them all decorated functions that were imported
    import_modules  modules to import first, for their decorated functions
    """

    def __init__(
        self,
        workers: Optional[Iterable[Worker]] = None,
        configuration: Optional[Configuration] = None,
        *,
        scan_for_annotated_workers: bool = True,
        import_modules: Optional[Iterable[str]] = None,
        drain_seconds: float = 30,
    ):
        for name in import_modules or ():
            importlib.import_module(name)
        found = list(workers or ())
        if not found and scan_for_annotated_workers:
            # A function that was decorated again, as by a reloaded module, replaces the former one.
            found = list({(worker.task_definition_name, worker.domain): worker for worker in _decorated}.values())
        if not found:
            raise ValueError("there are no workers: decorate a function with worker_task, or pass workers")
        self.workers = [worker.resolved() for worker in found]
        self._configuration = configuration or Configuration()
        self._drain = drain_seconds
        self._engines: list[tuple[_native.Worker, threading.Thread]] = []
        self._pools: list[concurrent.futures.ThreadPoolExecutor] = []
        self._loop: Optional[Loop] = None

    def start_processes(self) -> None:
        """Starts polling, in the background."""
        self._register()
        by_name: dict[str, list[Worker]] = {}
        for worker in self.workers:
            by_name.setdefault(worker.worker_id or this_process(), []).append(worker)
        for worker_id, workers in by_name.items():
            self._start(worker_id, workers)

    def stop_processes(self) -> None:
        """Stops polling and waits for the running functions, up to `drain_seconds`."""
        for engine, _ in self._engines:
            engine.stop()
        self.join_processes()
        for pool in self._pools:
            pool.shutdown(wait=False)
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        self._engines, self._pools = [], []

    def join_processes(self) -> None:
        """Waits until it is stopped by another thread or interrupted."""
        for _, thread in self._engines:
            while thread.is_alive():
                thread.join(0.2)  # in pieces, so that Ctrl-C is noticed

    def __enter__(self) -> "TaskHandler":
        self.start_processes()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop_processes()

    def _register(self) -> None:
        wanted = [worker for worker in self.workers if worker.register_task_def]
        if wanted:
            metadata = MetadataClient(self._configuration)
            for worker in wanted:
                metadata.register_task_def(worker.task_def or TaskDef(worker.task_definition_name))

    def _start(self, worker_id: str, workers: list[Worker]) -> None:
        engine, client = _native.Worker(self._drain), self._configuration.connect(worker_id)
        for worker in workers:
            interval = worker.poll_interval_millis / 1000
            dispatch = self._dispatch(worker, client)
            name, threads = worker.task_definition_name, worker.thread_count
            engine.add(name, worker.domain, threads, worker.lease_extend_enabled, interval, dispatch)
        thread = threading.Thread(target=engine.run, args=(client,), name="tenure-worker", daemon=True)
        thread.start()
        self._engines.append((engine, thread))

    def _dispatch(self, worker: Worker, client: "_native.Client") -> Callable[..., Job]:
        """What the engine calls for every task, from a native thread."""
        asynchronous = inspect.iscoroutinefunction(worker.function)
        if asynchronous:
            self._loop = self._loop or Loop("tenure-worker-loop")
        else:
            pool = concurrent.futures.ThreadPoolExecutor(worker.thread_count, f"tenure-{worker.task_definition_name}")
            self._pools.append(pool)

        def start(task: Mapping[str, Any], native: "_native.Context", done: "_native.Done") -> Job:
            context = TaskContext(task, native, client)
            finished = functools.partial(_finished, worker, context, done)
            if asynchronous:
                assert self._loop is not None
                return self._loop.start(lambda: _call_async(worker, context), finished)
            inside = contextvars.copy_context()
            inside.run(_running.set, context)
            return start_in_thread(pool, inside, lambda: _call(worker, context), finished)

        return start


def _call(worker: Worker, context: TaskContext) -> Any:
    return worker.function(**_arguments(worker, context))


async def _call_async(worker: Worker, context: TaskContext) -> Any:
    _running.set(context)
    return await worker.function(**_arguments(worker, context))


def _arguments(worker: Worker, context: TaskContext) -> dict[str, Any]:
    """The parameters, by name; what the input does not have is the default, else nothing."""
    given, arguments = context.get_input(), {}
    for name, parameter in inspect.signature(worker.function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update({key: value for key, value in given.items() if key not in arguments})
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL and (
            name in given or parameter.default is inspect.Parameter.empty
        ):
            arguments[name] = given.get(name)
    return arguments


def _finished(
    worker: Worker, context: TaskContext, done: "_native.Done", future: concurrent.futures.Future[Any]
) -> None:
    error = failure(future)
    if error is None:
        try:
            done(describe(future.result()))
            return
        except Exception as unsaid:
            error = unsaid  # a result that JSON cannot say, or that is none
    if isinstance(error, LeaseLost):
        _log.warning("%s: the lease on task %s is lost", worker.task_definition_name, context.get_task_id())
    else:
        _log.error("%s failed on task %s", worker.task_definition_name, context.get_task_id(), exc_info=error)
    done(describe_failure(error))
