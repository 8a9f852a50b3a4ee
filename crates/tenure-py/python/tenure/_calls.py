"""A call is described once, and made in two ways: by blocking, or with asyncio."""

from __future__ import annotations

import functools
from typing import Any, Awaitable, Callable, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from . import _native

__all__ = ["Call", "Makes", "awaited", "blocking"]

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Makes(Protocol[C]):
    """Whatever has a connection and knows the descriptions of its calls."""

    _calls: C

    def _connect(self) -> "_native.Client": ...


class Call(Generic[T]):
    """What is asked of the native half, and how its answer is read."""

    __slots__ = ("read", "send")

    def __init__(self, send: Callable[["_native.Client"], Any], read: Callable[[Any], T]):
        self.send = send
        self.read = read


def blocking(describe: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[Makes[C], P], T]:
    """A method that gives the answer."""

    @functools.wraps(describe)
    def method(self: Makes[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = describe(self._calls, *args, **kwargs)
        return call.read(call.send(self._connect()))

    return method


def awaited(describe: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[Makes[C], P], Awaitable[T]]:
    """A coroutine method that gives the answer."""

    @functools.wraps(describe)
    async def method(self: Makes[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = describe(self._calls, *args, **kwargs)
        return call.read(await call.send(self._connect()))

    return method
