"""The race's instructions for a worker in Python: variables of the environment, as in Race.java."""

from __future__ import annotations

import os


def setting(name: str) -> str:
    """The variable `RACE_<name>`, which must be there."""
    return os.environ[f"RACE_{name}"]


def milliseconds(name: str) -> int:
    """A variable that is a time."""
    return int(setting(name))
