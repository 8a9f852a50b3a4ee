"""The calls of the OpenIntent SDK, as its guides show them."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional
from urllib.parse import quote, urlencode

from . import _native
from .client import this_process
from .exceptions import ConflictError
from .intents import CoordinatorLease, Intent, IntentEvent, IntentLease, Portfolio

__all__ = ["OpenIntentClient"]

#: So many writers in a row may be faster before `update_state_with` gives up.
STATE_TRIES_MAX = 20


class OpenIntentClient:
    """Intents, their state and their leases, in the name of an agent.

    base_url  where the server is; else `TENURE_URL`, else the local one
    api_key   for a server that wants one; else `TENURE_API_KEY`
    agent_id  who acts; else `TENURE_HOLDER`, else `user@host:pid`
    timeout   seconds one try of a call may take (10)
    """

    def __init__(
        self,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        agent_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ):
        self.base_url = base_url or os.environ.get("TENURE_URL") or _native.DEFAULT_URL
        self.agent_id = agent_id or os.environ.get("TENURE_HOLDER") or this_process()
        key = api_key or os.environ.get("TENURE_API_KEY") or None
        self._native = _native.Client(self.base_url, key, self.agent_id, timeout, None, False)

    def __enter__(self) -> "OpenIntentClient":
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __repr__(self) -> str:
        return f"<OpenIntentClient of {self.agent_id} at {self.base_url}>"

    def request(self, method: str, path: str, body: Any = None, *, if_match: Any = None) -> Any:
        """Any call of the door that has no method here; `path` is below `/api/v1`."""
        return self._native.intents(method, path, body, None if if_match is None else str(if_match))

    # Intents

    def create_intent(
        self,
        title: str,
        description: str = "",
        constraints: Optional[Mapping[str, Any]] = None,
        initial_state: Optional[Mapping[str, Any]] = None,
        *,
        parent_intent_id: Optional[str] = None,
        depends_on: Optional[list[str]] = None,
    ) -> Intent:
        """Makes an intent."""
        body: dict[str, Any] = {
            "title": title,
            "description": description,
            "constraints": dict(constraints or {}),
            "state": dict(initial_state or {}),
            "created_by": self.agent_id,
        }
        if parent_intent_id:
            body["parent_intent_id"] = parent_intent_id
        if depends_on:
            body["depends_on"] = list(depends_on)
        return Intent.read(self.request("POST", "/intents", body))

    def get_intent(self, intent_id: str) -> Intent:
        """One intent. Raises `NotFoundError`."""
        return Intent.read(self.request("GET", f"/intents/{_name(intent_id)}"))

    def list_intents(self, status: Optional[str] = None, limit: int = 100, offset: int = 0) -> list[Intent]:
        """Intents, newest as the server orders them."""
        query = {"limit": limit, "offset": offset, **({"status": status} if status else {})}
        return [Intent.read(one) for one in self.request("GET", f"/intents?{urlencode(query)}")["intents"]]

    def set_status(self, intent_id: str, version: int, status: str, reason: Optional[str] = None) -> Intent:
        """Moves an intent on; `version` is the one that was read."""
        body = {"status": getattr(status, "value", status), **({"reason": reason} if reason else {})}
        return Intent.read(self.request("POST", f"/intents/{_name(intent_id)}/status", body, if_match=version))

    # State

    def patch_state(
        self, intent_id: str, patch: Mapping[str, Any], *, expected_version: Optional[int] = None
    ) -> Intent:
        """Sets members of the state.

        With `expected_version`, a newer one is refused with a `ConflictError` whose `current_version` says which is
        there. A part of the state that somebody else has leased is refused in any case.
        """
        patches = [{"op": "set", "path": path, "value": value} for path, value in patch.items()]
        if_match = "*" if expected_version is None else expected_version
        path = f"/intents/{_name(intent_id)}/state"
        return Intent.read(self.request("POST", path, {"patches": patches}, if_match=if_match))

    def update_state(self, intent_id: str, version: int, patch: Mapping[str, Any]) -> Intent:
        """`patch_state` with the version that was read."""
        return self.patch_state(intent_id, patch, expected_version=version)

    def update_state_with(self, intent_id: str, change: Callable[[Intent], Mapping[str, Any]]) -> Intent:
        """Changes the state by what `change` makes of the intent as it is, again if another writer was faster."""
        for attempt in range(STATE_TRIES_MAX):
            intent = self.get_intent(intent_id)
            try:
                return self.patch_state(intent_id, change(intent), expected_version=intent.version)
            except ConflictError as error:
                if error.current_version is None or attempt == STATE_TRIES_MAX - 1:
                    raise
        raise AssertionError("the last try gives back or raises")

    # Leases

    def acquire_lease(
        self,
        intent_id: str,
        scope: str = "*",
        ttl_seconds: Optional[float] = None,
        *,
        duration_seconds: Optional[float] = None,
    ) -> IntentLease:
        """Leases a scope of an intent; without a scope, all of it. Raises `ConflictError`, which names the holder.

        Nothing renews it but `renew_lease`. For a lease that is kept alive, use `tenure.Client.acquire` with
        `intent:<id>/<scope>`, or an agent.
        """
        seconds = _ttl(ttl_seconds, duration_seconds)
        body = {"scope": scope, "duration_seconds": seconds}
        return IntentLease.read(self.request("POST", f"/intents/{_name(intent_id)}/leases", body))

    def renew_lease(
        self,
        *ids: str,
        ttl_seconds: Optional[float] = None,
        duration_seconds: Optional[float] = None,
    ) -> IntentLease:
        """Renews a lease: `renew_lease(lease_id)` or `renew_lease(intent_id, lease_id)`. The ttl counts from now."""
        body = {"duration_seconds": _ttl(ttl_seconds, duration_seconds)}
        return IntentLease.read(self.request("PATCH", self._path(ids), body))

    def release_lease(self, *ids: str) -> None:
        """Gives a lease back: `release_lease(lease_id)` or `release_lease(intent_id, lease_id)`."""
        self.request("DELETE", self._path(ids))

    def get_leases(self, intent_id: str) -> list[IntentLease]:
        """The active leases of an intent."""
        answer = self.request("GET", f"/intents/{_name(intent_id)}/leases")
        return [IntentLease.read(one) for one in answer["leases"]]

    @staticmethod
    def _path(ids: tuple[str, ...]) -> str:
        if len(ids) == 1:
            return f"/leases/{_name(ids[0])}"
        if len(ids) == 2:
            return f"/intents/{_name(ids[0])}/leases/{_name(ids[1])}"
        raise TypeError(f"expected the id of a lease, or of an intent and a lease, not {len(ids)} ids")

    # Agents, portfolios, coordinators

    def assign_agent(self, intent_id: str, agent_id: str) -> Mapping[str, Any]:
        """Assigns an agent: it is told, also if it connects later."""
        return self.request("POST", f"/intents/{_name(intent_id)}/agents", {"agent_id": agent_id})

    def create_portfolio(self, name: str, description: Optional[str] = None) -> Portfolio:
        """Makes a portfolio."""
        body = {"name": name, "description": description, "created_by": self.agent_id}
        return Portfolio.read(self.request("POST", "/portfolios", {**body, "governance_policy": {}, "metadata": {}}))

    def get_portfolio(self, portfolio_id: str) -> Portfolio:
        """One portfolio."""
        return Portfolio.read(self.request("GET", f"/portfolios/{_name(portfolio_id)}"))

    def add_intent_to_portfolio(self, portfolio_id: str, intent_id: str, role: str = "member", priority: int = 0) -> Any:
        """Puts an intent into a portfolio."""
        body = {"intent_id": intent_id, "role": role, "priority": priority}
        return self.request("POST", f"/portfolios/{_name(portfolio_id)}/intents", body)

    def acquire_coordinator_lease(
        self,
        portfolio_id: Optional[str] = None,
        intent_id: Optional[str] = None,
        ttl_seconds: float = 600,
        *,
        supervisor_id: Optional[str] = None,
    ) -> CoordinatorLease:
        """Leads a portfolio or an intent. Raises `ConflictError` while another coordinator leads it."""
        if (portfolio_id is None) == (intent_id is None):
            raise TypeError("a coordinator leads a portfolio or an intent: give one of both ids")
        body: dict[str, Any] = {
            "agent_id": self.agent_id,
            "supervisor_id": supervisor_id or self.agent_id,
            "ttl_seconds": ttl_seconds,
            "scope": "portfolio" if portfolio_id else "intent",
        }
        body["portfolio_id" if portfolio_id else "intent_id"] = portfolio_id or intent_id
        return CoordinatorLease.read(self.request("POST", "/coordinators", body))

    def get_coordinator_lease(self, coordinator_id: str) -> CoordinatorLease:
        """A coordinator's term as it is now."""
        return CoordinatorLease.read(self.request("GET", f"/coordinators/{_name(coordinator_id)}"))

    def coordinator_heartbeat(self, coordinator_id: str) -> Mapping[str, Any]:
        """Says that the coordinator still leads."""
        return self.request("POST", f"/coordinators/{_name(coordinator_id)}/heartbeat")

    # Events and retries

    def get_events(self, intent_id: str, limit: int = 100) -> list[IntentEvent]:
        """What happened to an intent, newest first."""
        answer = self.request("GET", f"/intents/{_name(intent_id)}/events?limit={limit}")
        return [IntentEvent.read(one) for one in (answer["events"] if isinstance(answer, Mapping) else answer)]

    def set_retry_policy(self, intent_id: str, **policy: Any) -> Mapping[str, Any]:
        """How often and how fast a failed agent is assigned again: `strategy`, `max_retries`, `base_delay_ms`, …"""
        return self.request("PUT", f"/intents/{_name(intent_id)}/retry-policy", policy)

    def get_failures(self, intent_id: str) -> list[Mapping[str, Any]]:
        """The failures that were reported."""
        answer = self.request("GET", f"/intents/{_name(intent_id)}/failures")
        return list(answer.get("failures", ()) if isinstance(answer, Mapping) else answer)


def _name(text: str) -> str:
    return quote(text, safe="")


def _ttl(ttl_seconds: Optional[float], duration_seconds: Optional[float]) -> float:
    if ttl_seconds is not None and duration_seconds is not None:
        raise TypeError("ttl_seconds and duration_seconds are two names of the same: give one")
    given = ttl_seconds if ttl_seconds is not None else duration_seconds
    return 300 if given is None else given
