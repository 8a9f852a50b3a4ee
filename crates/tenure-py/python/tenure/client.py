"""The native API: leases on anything that can be named `kind:name`."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Optional, Union

from . import _native
from ._calls import Call, awaited, blocking
from .lease import Lease
from .models import Check, Event, LeaseInfo, Renewal

__all__ = ["AsyncClient", "AsyncEvents", "Client", "Events", "this_process"]

Within = Union[Lease, LeaseInfo, str, None]


def this_process() -> str:
    """`user@host:pid`: the holder's name if none is given."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


class _Calls:
    """The calls that have one answer."""

    def acquire_without_heartbeat(
        self,
        *resources: str,
        ttl: Optional[float] = None,
        wait: Optional[float] = None,
        shared: bool = False,
        grace: Optional[float] = None,
        within: Within = None,
        metadata: Optional[Mapping[str, Any]] = None,
        key: Optional[str] = None,
    ) -> Call[LeaseInfo]:
        """As `acquire`, but nobody renews it unless `renew` is called."""
        options = _options(ttl, wait, shared, grace, within, metadata, key)
        return Call(lambda native: native.acquire_without_heartbeat(list(resources), options), LeaseInfo.read)

    def renew(self, lease_id: str, ttl: Optional[float] = None) -> Call[Renewal]:
        """Renews a lease of this holder. Raises `LeaseLost` if it is over.

        Guards of this client take a new `ttl` over. Who keeps the lease elsewhere hears of it at the next heartbeat only: stop
        that process before you give its lease a shorter ttl.
        """
        return Call(lambda native: native.renew(lease_id, ttl), Renewal.read)

    def release(self, lease_id: str) -> Call[LeaseInfo]:
        """Gives a lease of this holder back. Twice is no error."""
        return Call(lambda native: native.release(lease_id), LeaseInfo.read)

    def revoke(self, lease_id: str, reason: str) -> Call[LeaseInfo]:
        """Takes a lease away from its holder, who is told the reason. Needs the admin role."""
        return Call(lambda native: native.revoke(lease_id, reason), LeaseInfo.read)

    def check(self, *resources: str, shared: bool = False) -> Call[Check]:
        """Who would stop an acquire, without taking anything."""
        return Call(lambda native: native.check(list(resources), shared), Check.read)

    def lease(self, lease_id: str) -> Call[LeaseInfo]:
        """One lease, also after it has ended."""
        return Call(lambda native: native.lease(lease_id), LeaseInfo.read)

    def history(self, lease_id: str) -> Call[list[Event]]:
        """What happened to one lease, oldest first."""
        return Call(lambda native: native.history(lease_id), lambda events: [Event.read(event) for event in events])

    def version(self) -> Call[Mapping[str, Any]]:
        """The server's version document."""
        return Call(lambda native: native.version(), dict)


class _Base:
    """What both clients share: where the server is, and in whose name."""

    _asynchronous: bool
    _calls = _Calls()

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        holder: Optional[str] = None,
        api_key: Optional[str] = None,
        timeout: Optional[float] = None,
        patience: Optional[float] = None,
    ):
        """Nothing is sent yet.

        url       where the server is; else `TENURE_URL`, else the local one
        holder    in whose name leases are taken; else `TENURE_HOLDER`, else `user@host:pid`. Two workers that
                  share a name share their leases.
        api_key   for a server that wants one; else `TENURE_API_KEY`
        timeout   seconds one try of a call may take, without the time it waits in line (10)
        patience  seconds for which a call is tried again while the server cannot be reached (10)
        """
        self._settings = (
            url or os.environ.get("TENURE_URL") or _native.DEFAULT_URL,
            api_key or os.environ.get("TENURE_API_KEY") or None,
        )
        self._holder = holder or os.environ.get("TENURE_HOLDER") or None
        self._limits = (timeout, patience)
        self._native_client: Optional[_native.Client] = None
        self._pid = -1
        self._connect()

    def _connect(self) -> "_native.Client":
        """The connection of this process. A forked child gets its own, and its own name if none was given."""
        if self._native_client is None or (self._holder is None and self._pid != os.getpid()):
            self._pid = os.getpid()
            holder = self._holder or this_process()
            self._native_client = _native.Client(*self._settings, holder, *self._limits, self._asynchronous)
        return self._native_client

    @property
    def url(self) -> str:
        return self._connect().url

    @property
    def holder(self) -> Optional[str]:
        return self._connect().holder

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.holder} at {self.url}>"


def _options(
    ttl: Optional[float],
    wait: Optional[float],
    shared: bool,
    grace: Optional[float],
    within: Within,
    metadata: Optional[Mapping[str, Any]],
    key: Optional[str],
) -> dict[str, Any]:
    parent = within if isinstance(within, str) or within is None else within.id
    return {
        "ttl": ttl,
        "wait": wait,
        "shared": shared,
        "grace": grace,
        "within": parent,
        "metadata": metadata,
        "key": key,
    }


class Client(_Base):
    """Calls that block. Threads may share one client; all its guards share one heartbeat thread."""

    _asynchronous = False

    def acquire(
        self,
        *resources: str,
        ttl: Optional[float] = None,
        wait: Optional[float] = None,
        shared: bool = False,
        grace: Optional[float] = None,
        within: Within = None,
        metadata: Optional[Mapping[str, Any]] = None,
        key: Optional[str] = None,
    ) -> Lease:
        """Acquires all of the resources or none, and keeps them for as long as the guard lives.

        ttl       seconds the lease lasts if this process stops answering (30)
        wait      seconds to wait in line; without it a held resource is refused at once
        shared    together with other shared leases
        grace     seconds for which the resources stay closed if this holder is lost
        within    a lease of the same holder that this one lives within
        metadata  a note that everyone can read with the lease
        key       idempotency key, to make the same acquire again from another process

        Raises `LeaseConflictError`, which names the holder, or `WaitTimedOut`.
        """
        options = _options(ttl, wait, shared, grace, within, metadata, key)
        return Lease(self._connect().acquire(list(resources), options), False)

    acquire_without_heartbeat = blocking(_Calls.acquire_without_heartbeat)
    renew = blocking(_Calls.renew)
    release = blocking(_Calls.release)
    revoke = blocking(_Calls.revoke)
    check = blocking(_Calls.check)
    lease = blocking(_Calls.lease)
    history = blocking(_Calls.history)
    version = blocking(_Calls.version)

    def leases(
        self, *, resource: Optional[str] = None, holder: Optional[str] = None, status: Optional[str] = None
    ) -> Iterator[LeaseInfo]:
        """All leases that match, page by page."""
        after = None
        while True:
            page = self._connect().leases(resource, holder, status, after)
            yield from map(LeaseInfo.read, page["leases"])
            after = page.get("next")
            if not after:
                return

    def events(
        self,
        after: int = 0,
        *,
        kind: Optional[str] = None,
        resource: Optional[str] = None,
        holder: Optional[str] = None,
    ) -> Iterator[Event]:
        """What happened after this cursor, oldest first, up to now."""
        cursor: Optional[int] = after
        while cursor is not None:
            page = self._connect().events(cursor, kind, resource, holder)
            yield from map(Event.read, page["events"])
            cursor = page.get("next") if page["events"] else None

    def watch(
        self,
        after: Optional[int] = None,
        *,
        kind: Optional[str] = None,
        resource: Optional[str] = None,
        holder: Optional[str] = None,
    ) -> "Events":
        """What happens after this cursor, as it happens; without one, from now on. An iterator that never ends."""
        return Events(self._connect().watch(after, kind, resource, holder), after)


class _Stream:
    """Events as they happen. Nothing is skipped: a broken connection is made again and goes on where it broke."""

    def __init__(self, native: "_native.Events", after: Optional[int]):
        self._native = native
        self._cursor = after

    @property
    def cursor(self) -> Optional[int]:
        """The last event that was given out: `watch(after=cursor)` goes on there, also in another process."""
        return self._cursor

    def _given(self, data: Mapping[str, Any]) -> Event:
        event = Event.read(data)
        self._cursor = event.cursor
        return event


class Events(_Stream):
    """`for event in client.watch(…)`."""

    def __iter__(self) -> "Events":
        return self

    def __next__(self) -> Event:
        return self._given(self._native.next(self._cursor))


class AsyncEvents(_Stream):
    """`async for event in client.watch(…)`. Cancelling loses nothing: what was on its way is given next time."""

    def __aiter__(self) -> "AsyncEvents":
        return self

    async def __anext__(self) -> Event:
        return self._given(await self._native.next(self._cursor))


class _Acquiring:
    """`await` it for the guard, or use it directly in `async with`. Nothing is sent before."""

    def __init__(self, start: Callable[[], Awaitable["_native.Guard"]]):
        self._start = start
        self._lease: Optional[Lease] = None

    async def _get(self) -> Lease:
        return Lease(await self._start(), True)

    def __await__(self) -> Generator[Any, None, Lease]:
        return self._get().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._get()
        return await self._lease.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(*error)


class AsyncClient(_Base):
    """The same calls for asyncio. Heartbeats do not need the event loop: it may block."""

    _asynchronous = True

    def acquire(
        self,
        *resources: str,
        ttl: Optional[float] = None,
        wait: Optional[float] = None,
        shared: bool = False,
        grace: Optional[float] = None,
        within: Within = None,
        metadata: Optional[Mapping[str, Any]] = None,
        key: Optional[str] = None,
    ) -> _Acquiring:
        """As `Client.acquire`: `async with client.acquire(…) as lease`, or `lease = await client.acquire(…)`."""
        options = _options(ttl, wait, shared, grace, within, metadata, key)
        return _Acquiring(lambda: self._connect().acquire(list(resources), options))

    acquire_without_heartbeat = awaited(_Calls.acquire_without_heartbeat)
    renew = awaited(_Calls.renew)
    release = awaited(_Calls.release)
    revoke = awaited(_Calls.revoke)
    check = awaited(_Calls.check)
    lease = awaited(_Calls.lease)
    history = awaited(_Calls.history)
    version = awaited(_Calls.version)

    async def leases(
        self, *, resource: Optional[str] = None, holder: Optional[str] = None, status: Optional[str] = None
    ) -> AsyncIterator[LeaseInfo]:
        """All leases that match, page by page."""
        after = None
        while True:
            page = await self._connect().leases(resource, holder, status, after)
            for one in page["leases"]:
                yield LeaseInfo.read(one)
            after = page.get("next")
            if not after:
                return

    async def events(
        self,
        after: int = 0,
        *,
        kind: Optional[str] = None,
        resource: Optional[str] = None,
        holder: Optional[str] = None,
    ) -> AsyncIterator[Event]:
        """What happened after this cursor, oldest first, up to now."""
        cursor: Optional[int] = after
        while cursor is not None:
            page = await self._connect().events(cursor, kind, resource, holder)
            for one in page["events"]:
                yield Event.read(one)
            cursor = page.get("next") if page["events"] else None

    def watch(
        self,
        after: Optional[int] = None,
        *,
        kind: Optional[str] = None,
        resource: Optional[str] = None,
        holder: Optional[str] = None,
    ) -> AsyncEvents:
        """What happens after this cursor, as it happens; without one, from now on. An iterator that never ends."""
        return AsyncEvents(self._connect().watch(after, kind, resource, holder), after)
