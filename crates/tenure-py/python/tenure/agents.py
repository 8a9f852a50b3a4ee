"""Agents: classes whose handlers are called for intents.

    @Agent("reliable-worker")
    class ReliableWorker:
        @on_assignment
        async def handle(self, intent):
            return {"status": "done"}

    ReliableWorker.run("http://localhost:8000")

Before a handler of an assignment runs, the lease on the whole intent is taken; it is kept alive by a native thread
while the handler runs; what the handler returns is written into the intent's state; then the lease is released. When
the lease is lost, the handler is stopped and nothing is written: an `async def` is cancelled, in the thread of a `def`
`LeaseLost` is raised at the next bytecode.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
import inspect
import logging
import sys
from typing import Any, Callable, Iterable, Mapping, Optional

from . import _native
from ._jobs import Job, Loop, failure, wait_in_thread
from .client import AsyncClient
from .exceptions import LeaseLost
from .intents import Intent
from .openintent import OpenIntentClient

__all__ = [
    "Agent",
    "on_assignment",
    "on_complete",
    "on_lease_available",
    "on_retry",
    "on_state_change",
]

#: The ttl of `self.lease` if none is said, in seconds.
DEFAULT_SCOPE_TTL = 60

_log = logging.getLogger("tenure.agents")
_current: contextvars.ContextVar[Optional[tuple[str, str]]] = contextvars.ContextVar("tenure_lease", default=None)
_Handler = Callable[..., Any]


def _mark(kind: str, detail: Any = None) -> Callable[[_Handler], _Handler]:
    def mark(handler: _Handler) -> _Handler:
        marks = getattr(handler, "_tenure_on", [])
        handler._tenure_on = [*marks, (kind, detail)]  # type: ignore[attr-defined]
        return handler

    return mark


def on_assignment(handler: _Handler) -> _Handler:
    """`handler(self, intent)`: the intent was assigned to this agent. It holds the lease on the whole intent."""
    return _mark("assignment")(handler)


def on_retry(handler: _Handler) -> _Handler:
    """`handler(self, intent, attempt, last_error)`: another try. Without it, `on_assignment` is called."""
    return _mark("retry")(handler)


def on_complete(handler: _Handler) -> _Handler:
    """`handler(self, intent)`: an intent of this agent is complete."""
    return _mark("complete")(handler)


def on_lease_available(scope: str) -> Callable[[_Handler], _Handler]:
    """`handler(self, intent, scope)`: that scope of an intent became free. The handler leases what it needs itself."""
    return _mark("lease_available", scope)


def on_state_change(members: Any = None) -> Any:
    """`handler(self, intent, old, new)`: one of these members of the state changed; any of them if none is named."""
    if callable(members):
        return _mark("state_change", ())(members)
    return _mark("state_change", (members,) if isinstance(members, str) else tuple(members or ()))


def Agent(
    name: str,
    *,
    auto_heartbeat: bool = True,
    ttl: float = 30,
    wait: float = 300,
    concurrency: int = 16,
    drain_timeout: float = 30,
    capabilities: Optional[Iterable[str]] = None,
    base_url: Optional[str] = None,
    api_key: Optional[str] = None,
) -> Callable[[type], type]:
    """Makes an agent of a class.

    auto_heartbeat  take the lease on an assigned intent and keep it alive while the handler runs; without it, handlers
                    lease what they need with `self.lease`
    ttl             seconds that lease lasts if this process stops answering
    wait            seconds to stand in line for an assigned intent that somebody holds
    concurrency     how many handlers run at the same time
    drain_timeout   seconds handlers may finish after `stop`
    capabilities    registers the agent while it runs, as one that can do this; a native thread says that it is there
    """

    def decorate(cls: type) -> type:
        settings = {
            "name": name,
            "ttl": ttl,
            "wait": wait,
            "drain": drain_timeout,
            "leases": auto_heartbeat,
            "concurrency": concurrency,
            "capabilities": None if capabilities is None else list(capabilities),
            "base_url": base_url,
            "api_key": api_key,
        }
        members = {"_tenure_settings": settings, "__doc__": cls.__doc__, "__module__": cls.__module__}
        return type(cls.__name__, (cls, _Runnable), {**members, "__qualname__": cls.__qualname__})

    return decorate


class _ClassOrInstance:
    """A method that makes its own instance when it is called on the class."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._function(owner() if instance is None else instance, *args, **kwargs)

        return call


class _Runnable:
    """What the decorator adds to a class."""

    _tenure_settings: Mapping[str, Any]

    @property
    def agent_id(self) -> str:
        return self._tenure_settings["name"]

    def _connect(self, base_url: Optional[str], api_key: Optional[str]) -> None:
        settings = self._tenure_settings
        self._url = base_url or settings["base_url"]
        self._key = api_key or settings["api_key"]
        #: Calls in this agent's name.
        self.client = OpenIntentClient(self._url, self._key, self.agent_id)
        self._leases = AsyncClient(self._url, holder=self.agent_id, api_key=self._key)

    @_ClassOrInstance
    def run(self: "_Runnable", base_url: Optional[str] = None, api_key: Optional[str] = None) -> None:
        """Works until `stop` is called, or until it is interrupted. Blocks."""
        self._connect(base_url, api_key)
        self._engine = _native.Agent()
        name = f"tenure-agent-{self.agent_id}"
        self._loop = Loop(name)
        # Not the pool of the loop: a handler that holds its lease must not stand in line for a thread, also not behind one that lost
        # its own and sits in a call. A thread is made only when none is idle, so there are as many as handlers that run.
        self._pool = concurrent.futures.ThreadPoolExecutor(sys.maxsize, name)
        try:
            self._engine.run(self.client._native, self._listens_to(), self._dispatch)
        finally:
            self._loop.close()
            self._pool.shutdown(wait=False)

    def stop(self) -> None:
        """Ends `run`, after the running handlers have finished. From any thread."""
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.stop()

    def lease(self, intent_id: str, scope: str = "*", ttl: Optional[float] = None, *, wait: Optional[float] = None) -> Any:
        """`async with self.lease(…) as lease`: holds a scope inside the block and keeps it alive.

        Inside a handler that already holds the whole intent, the scope is leased within that lease.
        """
        held = _current.get()
        within = held[1] if held and held[0] == intent_id else None
        seconds = DEFAULT_SCOPE_TTL if ttl is None else ttl
        return self._leases.acquire(f"intent:{intent_id}/{scope}", ttl=seconds, wait=wait, within=within)

    def _handlers(self) -> list[tuple[str, Any, _Handler]]:
        found = []
        for attribute in dir(type(self)):
            for kind, detail in getattr(getattr(type(self), attribute, None), "_tenure_on", ()):
                found.append((kind, detail, getattr(self, attribute)))
        return found

    def _listens_to(self) -> dict[str, Any]:
        handlers = self._handlers()
        watched = [detail for kind, detail, _ in handlers if kind == "state_change"]
        settings = self._tenure_settings
        return {
            **{name: settings[name] for name in ("ttl", "wait", "drain", "leases", "concurrency", "capabilities")},
            "scopes": sorted({detail for kind, detail, _ in handlers if kind == "lease_available"}),
            "members": [] if any(not detail for detail in watched) else sorted({m for d in watched for m in d}),
            "changes": bool(watched),
        }

    def _dispatch(self, kind: str, data: Mapping[str, Any], details: Mapping[str, Any], done: "_native.Done") -> Job:
        """Starts the handlers of a signal; from a native thread."""
        intent = Intent.read(data)

        def finished(future: concurrent.futures.Future[Any]) -> None:
            error = failure(future)
            if error is None:
                try:
                    done(future.result())
                    return
                except Exception as unsaid:
                    error = unsaid  # a patch that JSON cannot say
            if not isinstance(error, LeaseLost):
                _log.error("%s failed on intent %s", self.agent_id, intent.id, exc_info=error)
            done(None, f"{type(error).__name__}: {error}")

        return self._loop.start(lambda: self._handle(kind, intent, details), finished)

    async def _handle(self, kind: str, intent: Intent, details: Mapping[str, Any]) -> dict[str, Any]:
        lease_id = details.get("lease_id")
        _current.set((intent.id, lease_id) if lease_id else None)
        patch: dict[str, Any] = {}
        for handler, arguments in self._called(kind, intent, details):
            if inspect.iscoroutinefunction(handler):
                given = await handler(*arguments)
            else:
                given = await wait_in_thread(self._pool, functools.partial(handler, *arguments))
            if isinstance(given, Mapping):
                patch.update(given)
        return patch

    def _called(self, kind: str, intent: Intent, details: Mapping[str, Any]) -> list[tuple[_Handler, tuple[Any, ...]]]:
        """Which handlers a signal calls, with what."""
        handlers = [(detail, handler) for name, detail, handler in self._handlers() if name == kind]
        if kind == "lease_available":
            scope = details["scope"]
            return [(handler, (intent, scope)) for wanted, handler in handlers if wanted == scope]
        if kind == "state_change":
            old, new = details["old"], details["new"]
            changed = {member for member in {*old, *new} if old.get(member) != new.get(member)}
            called = [handler for wanted, handler in handlers if not wanted or changed & set(wanted)]
            return [(handler, (intent, old, new)) for handler in called]
        if kind == "retry" and handlers:
            return [(handler, (intent, details["attempt"], details["last_error"])) for _, handler in handlers]
        if kind == "retry":
            return self._called("assignment", intent, details)
        return [(handler, (intent,)) for _, handler in handlers]
