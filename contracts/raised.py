"""What code of the user's raised, in a clause for people."""

from __future__ import annotations

from headrace.contracts.problem_text import shortened

_CHARACTERS_MAX = 200


def told(error: BaseException) -> str:
    """Its kind and the first line of what it says, however long that is, or whatever it raises."""
    try:
        said = str(error).strip()
    except Exception:  # noqa: BLE001 (what it says is the user's code, too)
        said = ""
    line = said.partition("\n")[0].strip()
    if not line.isprintable():
        line = shortened(line)
    if len(line) > _CHARACTERS_MAX:
        line = line[: _CHARACTERS_MAX - 3] + "..."
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
