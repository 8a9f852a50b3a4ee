"""Seconds as the doors read them: whole ones."""

from __future__ import annotations

import math

__all__ = ["whole_seconds"]


def whole_seconds(name: str, seconds: float) -> int:
    """Rounded up: nothing begins or ends too early. Which are too few or too many is for the server to say."""
    try:
        return math.ceil(seconds)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number of seconds, not {seconds!r}") from error
