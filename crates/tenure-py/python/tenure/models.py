"""What the native API answers, as plain data."""

from __future__ import annotations

import dataclasses as _dc
import datetime as _dt
from typing import Any, Mapping, Optional

from .exceptions import parse_time

__all__ = ["Check", "Conflict", "Event", "LeaseInfo", "Renewal"]


@_dc.dataclass(frozen=True)
class LeaseInfo:
    """A lease as the server sees it."""

    id: str
    token: int
    resources: tuple[str, ...]
    holder: str
    mode: str
    status: str
    ttl: float
    acquired_at: Optional[_dt.datetime]
    expires_at: Optional[_dt.datetime]
    ended_at: Optional[_dt.datetime] = None
    within: Optional[str] = None
    note: Optional[str] = None
    metadata: Optional[Any] = None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "LeaseInfo":
        return cls(
            id=data["id"],
            token=data["token"],
            resources=tuple(data["resources"]),
            holder=data["holder"],
            mode=data.get("mode", "exclusive"),
            status=data["status"],
            ttl=data.get("ttl_ms", 0) / 1000,
            acquired_at=parse_time(data.get("acquired_at")),
            expires_at=parse_time(data.get("expires_at")),
            ended_at=parse_time(data.get("ended_at")),
            within=data.get("within"),
            note=data.get("note"),
            metadata=data.get("metadata"),
        )


@_dc.dataclass(frozen=True)
class Renewal:
    """An accepted renewal."""

    id: str
    ttl: float
    expires_at: Optional[_dt.datetime]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Renewal":
        return cls(id=data["id"], ttl=data["ttl_ms"] / 1000, expires_at=parse_time(data.get("expires_at")))


@_dc.dataclass(frozen=True)
class Conflict:
    """Who stands in the way of one resource."""

    resource: str
    overlap: str
    by: str
    holder: Optional[str] = None
    token: Optional[int] = None
    lease_id: Optional[str] = None
    expires_at: Optional[_dt.datetime] = None
    waiting: int = 0

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Conflict":
        return cls(
            resource=data["resource"],
            overlap=data["overlap"],
            by=data["by"],
            holder=data.get("holder"),
            token=data.get("token"),
            lease_id=data.get("lease_id"),
            expires_at=parse_time(data.get("expires_at")),
            waiting=data.get("waiting", 0),
        )


@_dc.dataclass(frozen=True)
class Check:
    """Whether an acquire would be granted, and who stands in the way if not."""

    free: bool
    conflicts: tuple[Conflict, ...]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Check":
        return cls(free=data["free"], conflicts=tuple(Conflict.read(one) for one in data.get("conflicts", ())))


@_dc.dataclass(frozen=True)
class Event:
    """Something that happened. `data` is the whole event."""

    cursor: int
    at: Optional[_dt.datetime]
    kind: str
    data: Mapping[str, Any]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Event":
        return cls(cursor=data["cursor"], at=parse_time(data["at"]), kind=data["kind"], data=dict(data))
