"""Describe an exception of the user's code in one clause."""

from __future__ import annotations

from headrace.contracts.problem_text import shortened

_CHARACTERS_MAX = 200


def clause_of(error: BaseException) -> str:
    """Return the exception's class and the first line of its message, shortened.

    Never raises, even if the exception's own `__str__` does.
    """
    try:
        said = str(error).strip()
    except Exception:  # noqa: BLE001 (the message is made by the user's code, too)
        said = ""
    line = said.partition("\n")[0].strip()
    if not line.isprintable():
        line = shortened(line)
    if len(line) > _CHARACTERS_MAX:
        line = line[: _CHARACTERS_MAX - 3] + "..."
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
