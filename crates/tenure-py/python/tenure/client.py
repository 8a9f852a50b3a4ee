"""The native API: leases on anything that can be named `kind:name`."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any, Awaitable, Callable, Generator, Iterator, Mapping, Optional, Union

from . import _native
from .lease import Lease
from .models import Check, Event, LeaseInfo, Renewal

__all__ = ["AsyncClient", "Client", "this_process"]

Within = Union[Lease, LeaseInfo, str, None]


def this_process() -> str:
    """`user@host:pid`: the holder's name if none is given."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


class _Base:
    """What both clients share: where the server is, and in whose name."""

    _asynchronous: bool

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
    ) -> LeaseInfo:
        """As `acquire`, but nobody renews it unless `renew` is called."""
        options = _options(ttl, wait, shared, grace, within, metadata, key)
        return LeaseInfo.read(self._connect().acquire_without_heartbeat(list(resources), options))

    def renew(self, lease_id: str, ttl: Optional[float] = None) -> Renewal:
        """Renews a lease of this holder. Raises `LeaseLost` if it is over."""
        return Renewal.read(self._connect().renew(lease_id, ttl))

    def release(self, lease_id: str) -> LeaseInfo:
        """Gives a lease of this holder back. Twice is no error."""
        return LeaseInfo.read(self._connect().release(lease_id))

    def revoke(self, lease_id: str, reason: str) -> LeaseInfo:
        """Takes a lease away from its holder, who is told the reason. Needs the admin role."""
        return LeaseInfo.read(self._connect().revoke(lease_id, reason))

    def check(self, *resources: str, shared: bool = False) -> Check:
        """Who would stop an acquire, without taking anything."""
        return Check.read(self._connect().check(list(resources), shared))

    def lease(self, lease_id: str) -> LeaseInfo:
        """One lease, also after it has ended."""
        return LeaseInfo.read(self._connect().lease(lease_id))

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

    def history(self, lease_id: str) -> list[Event]:
        """What happened to one lease, oldest first."""
        return [Event.read(event) for event in self._connect().history(lease_id)]

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

    def version(self) -> Mapping[str, Any]:
        """The server's version document."""
        return self._connect().version()


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

    async def renew(self, lease_id: str, ttl: Optional[float] = None) -> Renewal:
        """Renews a lease of this holder. Raises `LeaseLost` if it is over."""
        return Renewal.read(await self._connect().renew(lease_id, ttl))

    async def release(self, lease_id: str) -> LeaseInfo:
        """Gives a lease of this holder back. Twice is no error."""
        return LeaseInfo.read(await self._connect().release(lease_id))

    async def revoke(self, lease_id: str, reason: str) -> LeaseInfo:
        """Takes a lease away from its holder, who is told the reason. Needs the admin role."""
        return LeaseInfo.read(await self._connect().revoke(lease_id, reason))

    async def check(self, *resources: str, shared: bool = False) -> Check:
        """Who would stop an acquire, without taking anything."""
        return Check.read(await self._connect().check(list(resources), shared))

    async def lease(self, lease_id: str) -> LeaseInfo:
        """One lease, also after it has ended."""
        return LeaseInfo.read(await self._connect().lease(lease_id))

    async def version(self) -> Mapping[str, Any]:
        """The server's version document."""
        return await self._connect().version()
