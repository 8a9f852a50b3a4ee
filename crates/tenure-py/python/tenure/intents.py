"""Intents and what belongs to them, as plain data."""

from __future__ import annotations

import dataclasses as _dc
import datetime as _dt
from typing import Any, Mapping, Optional

from .exceptions import parse_time

__all__ = ["AgentRecord", "CoordinatorLease", "Intent", "IntentEvent", "IntentLease", "Portfolio"]


@_dc.dataclass
class Intent:
    """A versioned document with scopes. `data` is everything the server said."""

    id: str
    title: str
    description: Optional[str]
    version: int
    status: str
    state: dict[str, Any]
    created_by: Optional[str]
    created_at: Optional[_dt.datetime]
    updated_at: Optional[_dt.datetime]
    parent_intent_id: Optional[str]
    depends_on: list[str]
    data: Mapping[str, Any] = _dc.field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Intent":
        return cls(
            id=data["id"],
            title=data["title"],
            description=data.get("description"),
            version=data.get("version", 1),
            status=data.get("status", "draft"),
            state=dict(data.get("state") or {}),
            created_by=data.get("created_by"),
            created_at=parse_time(data.get("created_at")),
            updated_at=parse_time(data.get("updated_at")),
            parent_intent_id=data.get("parent_intent_id"),
            depends_on=list(data.get("depends_on") or ()),
            data=dict(data),
        )


@_dc.dataclass
class IntentLease:
    """A lease on one scope of an intent, `"*"` for all of it. `status` is the server's word."""

    id: str
    intent_id: str
    agent_id: str
    scope: str
    status: str
    created_at: Optional[_dt.datetime]
    expires_at: Optional[_dt.datetime]
    data: Mapping[str, Any] = _dc.field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "IntentLease":
        return cls(
            id=data["id"],
            intent_id=data["intent_id"],
            agent_id=data["agent_id"],
            scope=data["scope"],
            status=data["status"],
            created_at=parse_time(data.get("created_at") or data.get("acquired_at")),
            expires_at=parse_time(data.get("expires_at")),
            data=dict(data),
        )

    @property
    def token(self) -> Optional[int]:
        """The fencing number."""
        return self.data.get("token")

    @property
    def is_active(self) -> bool:
        """Whether it was held when the server answered and has not run out since, by this machine's clock."""
        now = _dt.datetime.now(_dt.timezone.utc)
        return self.status == "active" and (self.expires_at is None or now < self.expires_at)


@_dc.dataclass
class CoordinatorLease:
    """A coordinator's term."""

    id: str
    agent_id: str
    portfolio_id: Optional[str]
    intent_id: Optional[str]
    status: str
    expires_at: Optional[_dt.datetime]
    data: Mapping[str, Any] = _dc.field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "CoordinatorLease":
        return cls(
            id=data["id"],
            agent_id=data["agent_id"],
            portfolio_id=data.get("portfolio_id"),
            intent_id=data.get("intent_id"),
            status=data.get("status", "active"),
            expires_at=parse_time(data.get("expires_at")),
            data=dict(data),
        )


@_dc.dataclass
class Portfolio:
    """A group of intents."""

    id: str
    name: str
    status: str
    data: Mapping[str, Any] = _dc.field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Portfolio":
        return cls(id=data["id"], name=data["name"], status=data.get("status", "active"), data=dict(data))


@_dc.dataclass
class IntentEvent:
    """Something that happened to an intent."""

    id: str
    event_type: str
    actor: Optional[str]
    payload: Mapping[str, Any]
    created_at: Optional[_dt.datetime]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "IntentEvent":
        return cls(
            id=str(data.get("id", "")),
            event_type=data["event_type"],
            actor=data.get("actor"),
            payload=dict(data.get("payload") or {}),
            created_at=parse_time(data.get("created_at")),
        )


@_dc.dataclass
class AgentRecord:
    """An agent that is known to the server. `status` is the server's word: `active`, `unhealthy`, `dead`, …"""

    agent_id: str
    status: str
    capabilities: list[str]
    last_heartbeat_at: Optional[_dt.datetime]
    data: Mapping[str, Any] = _dc.field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "AgentRecord":
        return cls(
            agent_id=data["agent_id"],
            status=data["status"],
            capabilities=list(data.get("capabilities") or ()),
            last_heartbeat_at=parse_time(data.get("last_heartbeat_at")),
            data=dict(data),
        )
