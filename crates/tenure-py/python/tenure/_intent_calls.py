"""The calls about intents: what each sends, and how its answer is read. `openintent` makes them."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, TypeVar
from urllib.parse import quote, urlencode

from ._calls import Call
from ._seconds import whole_seconds
from .intents import AgentRecord, CoordinatorLease, Intent, IntentEvent, IntentLease, Portfolio

T = TypeVar("T")
#: A lease that names no ttl lasts so many seconds.
DEFAULT_TTL = 300


class IntentCalls:
    """In the name of an agent."""

    def __init__(self, agent_id: str):
        self.agent_id = agent_id

    def request(self, method: str, path: str, body: Any = None, *, if_match: Any = None) -> Call[Any]:
        """Any call of the door that has no method here; `path` is below `/api/v1`."""
        return _ask(method, path, body, lambda answer: answer, if_match=if_match)

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
    ) -> Call[Intent]:
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
        return _ask("POST", "/intents", body, Intent.read)

    def get_intent(self, intent_id: str) -> Call[Intent]:
        """One intent. Raises `NotFoundError`."""
        return _ask("GET", f"/intents/{_name(intent_id)}", None, Intent.read)

    def list_intents(self, status: Optional[str] = None, limit: int = 100, offset: int = 0) -> Call[list[Intent]]:
        """Intents, newest as the server orders them."""
        query = {"limit": limit, "offset": offset, **({"status": status} if status else {})}
        return _ask("GET", f"/intents?{urlencode(query)}", None, _each("intents", Intent.read))

    def set_status(self, intent_id: str, version: int, status: str, reason: Optional[str] = None) -> Call[Intent]:
        """Moves an intent on; `version` is the one that was read."""
        body = {"status": getattr(status, "value", status), **({"reason": reason} if reason else {})}
        return _ask("POST", f"/intents/{_name(intent_id)}/status", body, Intent.read, if_match=version)

    # State

    def patch_state(
        self, intent_id: str, patch: Mapping[str, Any], *, expected_version: Optional[int] = None
    ) -> Call[Intent]:
        """Sets members of the state.

        With `expected_version`, a newer one is refused with a `ConflictError` whose `current_version` says which is
        there. A part of the state that somebody else has leased is refused in any case.
        """
        patches = [{"op": "set", "path": path, "value": value} for path, value in patch.items()]
        if_match = "*" if expected_version is None else expected_version
        path = f"/intents/{_name(intent_id)}/state"
        return _ask("POST", path, {"patches": patches}, Intent.read, if_match=if_match)

    def update_state(self, intent_id: str, version: int, patch: Mapping[str, Any]) -> Call[Intent]:
        """`patch_state` with the version that was read."""
        return self.patch_state(intent_id, patch, expected_version=version)

    # Leases

    def acquire_lease(
        self,
        intent_id: str,
        scope: str = "*",
        ttl_seconds: Optional[float] = None,
        *,
        duration_seconds: Optional[float] = None,
    ) -> Call[IntentLease]:
        """Leases a scope of an intent; without a scope, all of it. Raises `ConflictError`, which names the holder.

        A ttl is counted in whole seconds: what is between two is rounded up. Nothing renews it but `renew_lease`. For a
        lease that is kept alive, use `tenure.Client.acquire` with `intent:<id>/<scope>`, or an agent.
        """
        body = {"scope": scope, "duration_seconds": _ttl(ttl_seconds, duration_seconds)}
        return _ask("POST", f"/intents/{_name(intent_id)}/leases", body, IntentLease.read)

    def renew_lease(
        self, *ids: str, ttl_seconds: Optional[float] = None, duration_seconds: Optional[float] = None
    ) -> Call[IntentLease]:
        """Renews a lease: `renew_lease(lease_id)` or `renew_lease(intent_id, lease_id)`. The ttl counts from now."""
        body = {"duration_seconds": _ttl(ttl_seconds, duration_seconds)}
        return _ask("PATCH", _lease(ids), body, IntentLease.read)

    def release_lease(self, *ids: str) -> Call[None]:
        """Gives a lease back: `release_lease(lease_id)` or `release_lease(intent_id, lease_id)`."""
        return _ask("DELETE", _lease(ids), None, lambda _: None)

    def get_leases(self, intent_id: str) -> Call[list[IntentLease]]:
        """The active leases of an intent."""
        return _ask("GET", f"/intents/{_name(intent_id)}/leases", None, _each("leases", IntentLease.read))

    # Agents

    def assign_agent(self, intent_id: str, agent_id: str) -> Call[Mapping[str, Any]]:
        """Assigns an agent: it is told, also if it connects later."""
        return _ask("POST", f"/intents/{_name(intent_id)}/agents", {"agent_id": agent_id}, dict)

    def unassign_agent(self, intent_id: str, agent_id: Optional[str] = None) -> Call[None]:
        """Takes an agent off an intent; this one if none is named."""
        path = f"/intents/{_name(intent_id)}/agents/{_name(agent_id or self.agent_id)}"
        return _ask("DELETE", path, None, lambda _: None)

    def register_agent(
        self, /, agent_id: Optional[str] = None, capabilities: Optional[list[str]] = None, **profile: Any
    ) -> Call[AgentRecord]:
        """Makes an agent known; this one if none is named.

        The profile may have `name`, `role_id`, `endpoint`, `capacity`, `metadata` and a `heartbeat_config` with
        `interval_seconds`, `unhealthy_after_seconds` and `dead_after_seconds`.
        """
        body = {"agent_id": agent_id or self.agent_id, "capabilities": list(capabilities or ()), **profile}
        return _ask("POST", "/agents/register", body, AgentRecord.read)

    def agent_heartbeat(
        self, agent_id: Optional[str] = None, current_load: int = 0, tasks_in_progress: Optional[list[str]] = None
    ) -> Call[Mapping[str, Any]]:
        """Says that an agent is there; this one if none is named."""
        body = {"status": "active", "current_load": current_load, "tasks_in_progress": list(tasks_in_progress or ())}
        return _ask("POST", f"/agents/{_name(agent_id or self.agent_id)}/heartbeat", body, dict)

    def list_agents(self, status: Optional[str] = None, role_id: Optional[str] = None) -> Call[list[AgentRecord]]:
        """The agents that are known."""
        query = {name: value for name, value in (("status", status), ("role_id", role_id)) if value}
        return _ask("GET", f"/agents?{urlencode(query)}", None, _each("agents", AgentRecord.read))

    def get_agent_record(self, agent_id: str) -> Call[AgentRecord]:
        """One agent. Raises `NotFoundError`."""
        return _ask("GET", f"/agents/{_name(agent_id)}/record", None, AgentRecord.read)

    def update_agent_status(self, agent_id: str, status: str) -> Call[Mapping[str, Any]]:
        """Moves an agent on: `active`, `draining`, `deregistered`."""
        return _ask("PATCH", f"/agents/{_name(agent_id)}/status", {"status": status}, dict)

    # Portfolios and coordinators

    def create_portfolio(self, name: str, description: Optional[str] = None) -> Call[Portfolio]:
        """Makes a portfolio."""
        body = {"name": name, "description": description, "created_by": self.agent_id}
        return _ask("POST", "/portfolios", {**body, "governance_policy": {}, "metadata": {}}, Portfolio.read)

    def get_portfolio(self, portfolio_id: str) -> Call[Portfolio]:
        """One portfolio."""
        return _ask("GET", f"/portfolios/{_name(portfolio_id)}", None, Portfolio.read)

    def add_intent_to_portfolio(
        self, portfolio_id: str, intent_id: str, role: str = "member", priority: int = 0
    ) -> Call[Any]:
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
    ) -> Call[CoordinatorLease]:
        """Leads a portfolio or an intent. Raises `ConflictError` while another coordinator leads it.

        A ttl is counted in whole seconds: what is between two is rounded up.
        """
        if (portfolio_id is None) == (intent_id is None):
            raise TypeError("a coordinator leads a portfolio or an intent: give one of both ids")
        body: dict[str, Any] = {
            "agent_id": self.agent_id,
            "supervisor_id": supervisor_id or self.agent_id,
            "ttl_seconds": whole_seconds("ttl_seconds", ttl_seconds),
            "scope": "portfolio" if portfolio_id else "intent",
        }
        body["portfolio_id" if portfolio_id else "intent_id"] = portfolio_id or intent_id
        return _ask("POST", "/coordinators", body, CoordinatorLease.read)

    def get_coordinator_lease(self, coordinator_id: str) -> Call[CoordinatorLease]:
        """A coordinator's term as it is now."""
        return _ask("GET", f"/coordinators/{_name(coordinator_id)}", None, CoordinatorLease.read)

    def coordinator_heartbeat(self, coordinator_id: str) -> Call[Mapping[str, Any]]:
        """Says that the coordinator still leads."""
        return _ask("POST", f"/coordinators/{_name(coordinator_id)}/heartbeat", None, dict)

    # Events and retries

    def get_events(self, intent_id: str, limit: int = 100) -> Call[list[IntentEvent]]:
        """What happened to an intent, newest first."""
        path = f"/intents/{_name(intent_id)}/events?limit={limit}"
        return _ask("GET", path, None, _each("events", IntentEvent.read))

    def set_retry_policy(self, /, intent_id: str, **policy: Any) -> Call[Mapping[str, Any]]:
        """How often and how fast a failed agent is assigned again: `strategy`, `max_retries`, `base_delay_ms`, …"""
        return _ask("PUT", f"/intents/{_name(intent_id)}/retry-policy", policy, dict)

    def get_failures(self, intent_id: str) -> Call[list[Mapping[str, Any]]]:
        """The failures that were reported."""
        return _ask("GET", f"/intents/{_name(intent_id)}/failures", None, _each("failures", dict))


def _ask(method: str, path: str, body: Any, read: Callable[[Any], T], *, if_match: Any = None) -> Call[T]:
    version = None if if_match is None else str(if_match)
    return Call(lambda native: native.intents(method, path, body, version), read)


def _each(member: str, read: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    """Reads a list that may stand alone or be a member of an object."""
    return lambda answer: [read(one) for one in (answer[member] if isinstance(answer, Mapping) else answer)]


def _name(text: str) -> str:
    return quote(text, safe="")


def _lease(ids: tuple[str, ...]) -> str:
    if len(ids) == 1:
        return f"/leases/{_name(ids[0])}"
    if len(ids) == 2:
        return f"/intents/{_name(ids[0])}/leases/{_name(ids[1])}"
    raise TypeError(f"expected the id of a lease, or of an intent and a lease, not {len(ids)} ids")


def _ttl(ttl_seconds: Optional[float], duration_seconds: Optional[float]) -> int:
    if ttl_seconds is not None and duration_seconds is not None:
        raise TypeError("ttl_seconds and duration_seconds are two names of the same: give one")
    if duration_seconds is not None:
        return whole_seconds("duration_seconds", duration_seconds)
    return DEFAULT_TTL if ttl_seconds is None else whole_seconds("ttl_seconds", ttl_seconds)
