"""The guard: a lease that is kept alive, and the duty to stop when it is lost."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from types import TracebackType
from typing import Any, Callable, Optional

from . import _native
from .exceptions import LeaseLost
from .models import LeaseInfo

__all__ = ["Lease"]


class Lease:
    """A lease that a native thread keeps alive, whatever Python is doing.

    As a context manager it gives the lease back at the end of the block, and stops the block when the lease is lost:
    `with` raises `LeaseLost` in the thread at its next bytecode, `async with` cancels the task and turns the
    cancellation into `LeaseLost`. When renewals fail, that happens before the lease can have run out; when an
    administrator takes the lease away, at the next heartbeat. A thread that sits in one long call of C code is told
    when that call returns.

    Without a block, ask `lost`, or pass a function to `on_lost`, and call `release` when the work is done. A guard that
    is thrown away stops beating, and the lease lapses after its ttl.
    """

    __slots__ = ("_asynchronous", "_guard", "_watcher")

    def __init__(self, guard: "_native.Guard", asynchronous: bool):
        self._guard = guard
        self._asynchronous = asynchronous
        self._watcher: Optional[_Watcher] = None

    @property
    def info(self) -> LeaseInfo:
        """The lease as it was granted; its `expires_at` is the first one, before any renewal."""
        return LeaseInfo.read(self._guard.info())

    @property
    def id(self) -> str:
        return self._guard.id

    @property
    def token(self) -> int:
        """The fencing number: larger than every token granted before. Hand it to whatever the work writes to."""
        return self._guard.token

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(self._guard.resources)

    @property
    def holder(self) -> str:
        return self._guard.holder

    @property
    def state(self) -> str:
        """`held`, `at_risk` (a renewal is overdue), `lost` or `released`. Asks nobody."""
        return self._guard.state

    @property
    def lost(self) -> bool:
        """Whether it is over, or may be over. Final."""
        return self._guard.state == "lost"

    @property
    def loss(self) -> Optional[str]:
        """How it was lost, in words."""
        return self._guard.loss

    @property
    def trusted_for(self) -> float:
        """Seconds for which it may still be trusted if nothing more is heard from the server."""
        return self._guard.trusted_for

    def check(self) -> None:
        """Raises `LeaseLost` if it is lost."""
        if self.lost:
            raise self._lost()

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Calls it once, from another thread, with how the lease was lost."""
        self._guard.on_lost(callback)

    def release(self) -> Any:
        """Gives it back, now; a coroutine's `await` for a lease of an `AsyncClient`. Twice is no error."""
        return self._guard.release()

    def __repr__(self) -> str:
        return f"<Lease {self.id} on {', '.join(self.resources)} by {self.holder}: {self.state}>"

    def _lost(self) -> LeaseLost:
        what = ", ".join(self.resources)
        return LeaseLost(f"the lease on {what} is lost: {self.loss}", reason=self.loss)

    # Each kind of client has its kind of block, and the block decides how the work is told.

    def __enter__(self) -> "Lease":
        if self._asynchronous:
            raise TypeError("a lease of an AsyncClient is used with 'async with'")
        self.check()
        self._watcher = _Thread()
        self._guard.on_lost(self._watcher.tell)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            told = self._leave()
            was_lost = self.lost
            if not was_lost:
                self._guard.release()
        except LeaseLost as late:
            raise self._lost() from (error or late)
        if was_lost and (told or kind is None or kind is LeaseLost):
            raise self._lost() from error

    async def __aenter__(self) -> "Lease":
        if not self._asynchronous:
            raise TypeError("a lease of a Client is used with 'with'")
        self.check()
        self._watcher = _Task()
        self._guard.on_lost(self._watcher.tell)
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        told = self._leave()
        if not self.lost:
            await self._guard.release()
        elif told or kind is None:
            raise self._lost() from error

    def _leave(self) -> bool:
        watcher, self._watcher = self._watcher, None
        return watcher is not None and watcher.leave()


class _Watcher:
    """Stops the work inside a block once, and never after the block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = True
        self._told = False

    def tell(self, _loss: str) -> None:
        """From a native thread, when the lease is lost."""
        with self._lock:
            if self._inside:
                self._told = True
                self._stop()

    def leave(self) -> bool:
        """The block ends. Whether it was told to stop; what has not reached it yet is taken back."""
        with self._lock:
            self._inside = False
            if self._told:
                self._take_back()
            return self._told

    def _stop(self) -> None:
        raise NotImplementedError

    def _take_back(self) -> None:
        raise NotImplementedError


class _Thread(_Watcher):
    """Raises in the thread that entered the block."""

    def __init__(self) -> None:
        super().__init__()
        self._ident = ctypes.c_ulong(threading.get_ident())

    def _stop(self) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, ctypes.py_object(LeaseLost))

    def _take_back(self) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, None)


class _Task(_Watcher):
    """Cancels the task that entered the block."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("'async with' on a lease needs a task of asyncio")
        self._task = task
        self._cancelled = False

    def _stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # The loop is closed: nothing runs there any more.

    def _cancel(self) -> None:
        if self._inside:
            self._cancelled = True
            self._task.cancel()

    def _take_back(self) -> None:
        # From Python 3.11 on a task counts its cancellations; this one is answered by LeaseLost.
        if self._cancelled and hasattr(self._task, "uncancel"):
            self._task.uncancel()
