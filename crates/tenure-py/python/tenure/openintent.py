"""The calls of the OpenIntent SDK, as its guides show them: blocking, and for asyncio."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional

from . import _native
from ._calls import awaited, blocking
from ._intent_calls import IntentCalls as _Calls
from .client import this_process
from .exceptions import ConflictError
from .intents import Intent

__all__ = ["AsyncOpenIntentClient", "OpenIntentClient"]

#: So many writers in a row may be faster before `update_state_with` gives up.
STATE_TRIES_MAX = 20


class _Agent:
    """Who asks, and whom."""

    _asynchronous: bool

    def __init__(
        self,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        agent_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ):
        self.base_url = base_url or os.environ.get("TENURE_URL") or _native.DEFAULT_URL
        self.agent_id = agent_id or os.environ.get("TENURE_HOLDER") or this_process()
        self._calls = _Calls(self.agent_id)
        key = api_key or os.environ.get("TENURE_API_KEY") or None
        self._native = _native.Client(self.base_url, key, self.agent_id, timeout, None, self._asynchronous)

    def _connect(self) -> "_native.Client":
        return self._native

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.agent_id} at {self.base_url}>"


class OpenIntentClient(_Agent):
    """Intents, their state and their leases, in the name of an agent.

    base_url  where the server is; else `TENURE_URL`, else the local one
    api_key   for a server that wants one; else `TENURE_API_KEY`
    agent_id  who acts; else `TENURE_HOLDER`, else `user@host:pid`
    timeout   seconds one try of a call may take (10)
    """

    _asynchronous = False

    request = blocking(_Calls.request)
    create_intent = blocking(_Calls.create_intent)
    get_intent = blocking(_Calls.get_intent)
    list_intents = blocking(_Calls.list_intents)
    set_status = blocking(_Calls.set_status)
    patch_state = blocking(_Calls.patch_state)
    update_state = blocking(_Calls.update_state)
    acquire_lease = blocking(_Calls.acquire_lease)
    renew_lease = blocking(_Calls.renew_lease)
    release_lease = blocking(_Calls.release_lease)
    get_leases = blocking(_Calls.get_leases)
    assign_agent = blocking(_Calls.assign_agent)
    unassign_agent = blocking(_Calls.unassign_agent)
    register_agent = blocking(_Calls.register_agent)
    agent_heartbeat = blocking(_Calls.agent_heartbeat)
    list_agents = blocking(_Calls.list_agents)
    get_agent_record = blocking(_Calls.get_agent_record)
    update_agent_status = blocking(_Calls.update_agent_status)
    create_portfolio = blocking(_Calls.create_portfolio)
    get_portfolio = blocking(_Calls.get_portfolio)
    add_intent_to_portfolio = blocking(_Calls.add_intent_to_portfolio)
    acquire_coordinator_lease = blocking(_Calls.acquire_coordinator_lease)
    get_coordinator_lease = blocking(_Calls.get_coordinator_lease)
    coordinator_heartbeat = blocking(_Calls.coordinator_heartbeat)
    get_events = blocking(_Calls.get_events)
    set_retry_policy = blocking(_Calls.set_retry_policy)
    get_failures = blocking(_Calls.get_failures)

    def update_state_with(self, intent_id: str, change: Callable[[Intent], Mapping[str, Any]]) -> Intent:
        """Changes the state by what `change` makes of the intent as it is, again if another writer was faster."""
        for attempt in range(STATE_TRIES_MAX):
            intent = self.get_intent(intent_id)
            try:
                return self.patch_state(intent_id, change(intent), expected_version=intent.version)
            except ConflictError as error:
                _overtaken(error, attempt)
        raise AssertionError("the last try gives back or raises")

    def __enter__(self) -> "OpenIntentClient":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class AsyncOpenIntentClient(_Agent):
    """The same calls for asyncio."""

    _asynchronous = True

    request = awaited(_Calls.request)
    create_intent = awaited(_Calls.create_intent)
    get_intent = awaited(_Calls.get_intent)
    list_intents = awaited(_Calls.list_intents)
    set_status = awaited(_Calls.set_status)
    patch_state = awaited(_Calls.patch_state)
    update_state = awaited(_Calls.update_state)
    acquire_lease = awaited(_Calls.acquire_lease)
    renew_lease = awaited(_Calls.renew_lease)
    release_lease = awaited(_Calls.release_lease)
    get_leases = awaited(_Calls.get_leases)
    assign_agent = awaited(_Calls.assign_agent)
    unassign_agent = awaited(_Calls.unassign_agent)
    register_agent = awaited(_Calls.register_agent)
    agent_heartbeat = awaited(_Calls.agent_heartbeat)
    list_agents = awaited(_Calls.list_agents)
    get_agent_record = awaited(_Calls.get_agent_record)
    update_agent_status = awaited(_Calls.update_agent_status)
    create_portfolio = awaited(_Calls.create_portfolio)
    get_portfolio = awaited(_Calls.get_portfolio)
    add_intent_to_portfolio = awaited(_Calls.add_intent_to_portfolio)
    acquire_coordinator_lease = awaited(_Calls.acquire_coordinator_lease)
    get_coordinator_lease = awaited(_Calls.get_coordinator_lease)
    coordinator_heartbeat = awaited(_Calls.coordinator_heartbeat)
    get_events = awaited(_Calls.get_events)
    set_retry_policy = awaited(_Calls.set_retry_policy)
    get_failures = awaited(_Calls.get_failures)

    async def update_state_with(self, intent_id: str, change: Callable[[Intent], Mapping[str, Any]]) -> Intent:
        """Changes the state by what `change` makes of the intent as it is, again if another writer was faster."""
        for attempt in range(STATE_TRIES_MAX):
            intent = await self.get_intent(intent_id)
            try:
                return await self.patch_state(intent_id, change(intent), expected_version=intent.version)
            except ConflictError as error:
                _overtaken(error, attempt)
        raise AssertionError("the last try gives back or raises")

    async def __aenter__(self) -> "AsyncOpenIntentClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        return None


def _overtaken(error: ConflictError, attempt: int) -> None:
    """Raises unless another writer was faster and there are tries left."""
    if error.current_version is None or attempt == STATE_TRIES_MAX - 1:
        raise error
