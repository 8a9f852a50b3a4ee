"""Where workers get their settings from: the environment of one worker, the environment of all, the code.

The names of Conductor's SDK are read, in its order; the first that is present decides. Names with dots cannot be
exported by a shell (`env 'conductor.worker.all.domain=x' python …` can set them), so every setting also has a name with
underscores.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

__all__ = ["environment_names", "setting"]

_TRUE = frozenset({"true", "1", "yes", "on"})


def environment_names(worker: str, setting: str) -> list[str]:
    """The names under which a setting of a worker is looked for, the strongest first."""
    upper = setting.upper()
    return [
        f"conductor.worker.{worker}.{setting}",
        f"conductor_worker_{worker}_{setting}",
        f"CONDUCTOR_WORKER_{worker.upper()}_{upper}",
        f"CONDUCTOR_WORKER_{worker}_{upper}",
        f"conductor.worker.all.{setting}",
        f"conductor_worker_all_{setting}",
        f"CONDUCTOR_WORKER_ALL_{upper}",
        f"conductor_worker_{setting}",
        f"CONDUCTOR_WORKER_{upper}",
    ]


def setting(worker: str, name: str, code: Any, environment: Optional[Mapping[str, str]] = None) -> Any:
    """The value of a setting, of the type it has in the code."""
    environment = os.environ if environment is None else environment
    for variable in environment_names(worker, name):
        if variable in environment:
            return _read(environment[variable], code, variable)
    return code


def _read(text: str, code: Any, variable: str) -> Any:
    if isinstance(code, bool):
        return text.lower() in _TRUE
    if isinstance(code, int):
        try:
            return int(text)
        except ValueError as error:
            raise ValueError(f"{variable} must be a whole number, not {text!r}") from error
    return text
