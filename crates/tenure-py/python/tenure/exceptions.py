"""How calls fail.

`Refused` means that the server said no, and carries what it said; the other errors mean that nothing was decided.
`LeaseLost` tells running work that it must stop. The names of the OpenIntent SDK are kept for code that has them.
"""

from __future__ import annotations

import datetime as _dt
from typing import Any, Mapping, Optional

__all__ = [
    "AuthenticationError",
    "BadAnswer",
    "ConflictError",
    "LeaseConflictError",
    "LeaseLost",
    "NotFoundError",
    "OpenIntentError",
    "Refused",
    "TenureError",
    "Unreachable",
    "ValidationError",
    "WaitTimedOut",
    "WouldDeadlock",
]


class TenureError(Exception):
    """The root of all errors of this package. `code` is stable."""

    code: str = "error"

    def __init__(self, message: str = "", *, code: Optional[str] = None):
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class Unreachable(TenureError, ConnectionError):
    """No answer came. A call that changes something may or may not have been carried out."""

    code = "unreachable"


class BadAnswer(TenureError):
    """An answer came that is not Tenure's, or the client cannot be set up as asked."""

    code = "bad_answer"


class LeaseLost(TenureError):
    """The lease is over, or may be over: stop. Somebody else may hold the resource from now on.

    `reason` says how it ended, `holder` who has it now, if that is known.
    """

    code = "lost"

    def __init__(
        self, message: str = "the lease is lost", *, reason: Optional[str] = None, holder: Optional[str] = None
    ):
        super().__init__(message)
        self.reason = reason
        self.holder = holder


class Refused(TenureError):
    """The server said no. `response` is its whole answer, `status_code` the HTTP status."""

    def __init__(
        self,
        message: str = "",
        *,
        code: Optional[str] = None,
        response: Optional[Mapping[str, Any]] = None,
    ):
        super().__init__(message, code=code)
        self.response: dict[str, Any] = dict(response or {})
        self.status_code: Optional[int] = self.response.get("status")

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds after which to try again, if the server said so."""
        after = self.response.get("retry_after_ms")
        return None if after is None else after / 1000


class ConflictError(Refused):
    """Someone else stands in the way: a holder, or a newer version."""

    @property
    def _obstacle(self) -> Mapping[str, Any]:
        for name in ("conflict", "existing_lease", "current"):
            found = self.response.get(name)
            if isinstance(found, Mapping):
                return found
        return self.response

    @property
    def current_holder(self) -> Optional[str]:
        """Who has it."""
        found = self._obstacle
        return self.response.get("current_holder") or found.get("holder") or found.get("agent_id")

    @property
    def holder(self) -> Optional[str]:
        """Who has it."""
        return self.current_holder

    @property
    def expires_at(self) -> Optional[_dt.datetime]:
        """Until when, without another renewal."""
        return parse_time(self._obstacle.get("expires_at"))

    @property
    def token(self) -> Optional[int]:
        """The token of the lease that stands in the way."""
        return self._obstacle.get("token")

    @property
    def resource(self) -> Optional[str]:
        """What was asked for and is not free."""
        return self._obstacle.get("resource") or self._obstacle.get("scope")

    @property
    def existing_lease(self) -> Optional[Mapping[str, Any]]:
        """The lease that stands in the way, as the server shows it."""
        return self.response.get("existing_lease") or self.response.get("conflict")

    @property
    def current_version(self) -> Optional[int]:
        """The version that is there, if another one was expected."""
        return self.response.get("current_version")


class LeaseConflictError(ConflictError):
    """It is held by someone else."""


class WaitTimedOut(ConflictError):
    """The wait in line ran out."""


class WouldDeadlock(Refused):
    """Waiting would never end: each of `cycle` waits for the next, the last for the first."""

    @property
    def cycle(self) -> list[str]:
        return list(self.response.get("cycle") or ())


class NotFoundError(Refused):
    """There is no such thing."""


class ValidationError(Refused):
    """The request is wrong; `errors` says where."""

    @property
    def errors(self) -> list[Any]:
        return list(self.response.get("errors") or ())


class AuthenticationError(Refused):
    """The API key is missing, unknown, or may not do this."""


#: What the OpenIntent SDK calls the root of its errors.
OpenIntentError = TenureError

_BY_CODE: dict[str, type[Refused]] = {
    "held": LeaseConflictError,
    "wait_timed_out": WaitTimedOut,
    "would_deadlock": WouldDeadlock,
    "unknown_lease": NotFoundError,
    "not_holder": LeaseConflictError,
    "bad_request": ValidationError,
    "unauthorized": AuthenticationError,
    "forbidden": AuthenticationError,
}
_BY_STATUS: dict[int, type[Refused]] = {
    400: ValidationError,
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
}


def parse_time(value: Any) -> Optional[_dt.datetime]:
    """A time of the server, always with its zone. Text without a zone is UTC."""
    if not isinstance(value, str):
        return None
    # Python 3.10 reads neither a trailing Z nor fractions of other lengths.
    text = value[:-1] + "+00:00" if value.endswith("Z") else value
    time = _dt.datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=_dt.timezone.utc)


def _from_native(
    code: str, message: str, response: Optional[Mapping[str, Any]], causes: list[str]
) -> TenureError:
    """The exception for what the native half reports."""
    error: TenureError
    if response is None:
        error = Unreachable(message) if code == "unreachable" else BadAnswer(message, code=code)
    elif code == "lost":
        now = response.get("current") or {}
        error = LeaseLost(message, reason=response.get("reason"), holder=now.get("holder"))
    else:
        kind = _BY_CODE.get(code) or _BY_STATUS.get(response.get("status") or 0, Refused)
        if kind is ConflictError and (response.get("existing_lease") or response.get("current_holder")):
            kind = LeaseConflictError
        error = kind(message, code=code, response=response)
    inner: Optional[BaseException] = None
    for cause in reversed(causes):
        link = ConnectionError(cause) if code == "unreachable" else ValueError(cause)
        link.__cause__ = inner
        inner = link
    error.__cause__ = inner
    return error
