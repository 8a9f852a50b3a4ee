"""Tenure: who holds what, until when, and what happens when they stop answering.

    import tenure

    client = tenure.Client(holder="agent-7")
    with client.acquire("path:src/parser.rs", ttl=30, wait=60) as lease:
        work(lease.token)

Heartbeats run in a native thread: they go on while Python computes, while an event loop is blocked, and inside C code
that keeps the interpreter lock. A process that is killed or cut off loses its leases after their ttl; one that ends
normally gives them back.

A forked child does not hold the leases of its parent, and makes its own connections. Only the main interpreter can
import this package.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os

from . import _native, exceptions
from ._native import DEFAULT_URL, __version__
from .client import AsyncClient, AsyncEvents, Client, Events
from .exceptions import (
    AuthenticationError,
    ConflictError,
    LeaseConflictError,
    LeaseLost,
    NotFoundError,
    Refused,
    TenureError,
    Unreachable,
    ValidationError,
    WaitTimedOut,
    WouldDeadlock,
)
from .lease import Lease
from .intents import AgentRecord, CoordinatorLease, Intent, IntentEvent, IntentLease, Portfolio
from .models import Check, Conflict, Event, LeaseInfo, Renewal
from .openintent import AsyncOpenIntentClient, OpenIntentClient

__all__ = [
    "DEFAULT_URL",
    "AgentRecord",
    "AsyncClient",
    "AsyncEvents",
    "AsyncOpenIntentClient",
    "AuthenticationError",
    "Check",
    "Client",
    "Conflict",
    "ConflictError",
    "CoordinatorLease",
    "Event",
    "Events",
    "Intent",
    "IntentEvent",
    "IntentLease",
    "Lease",
    "LeaseConflictError",
    "LeaseInfo",
    "LeaseLost",
    "NotFoundError",
    "OpenIntentClient",
    "Portfolio",
    "Refused",
    "Renewal",
    "TenureError",
    "Unreachable",
    "ValidationError",
    "WaitTimedOut",
    "WouldDeadlock",
    "__version__",
    "exceptions",
]

_atexit.register(_native.shutdown)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(
        before=_native.before_fork, after_in_parent=_native.after_fork, after_in_child=_native.forked
    )
