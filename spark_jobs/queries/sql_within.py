"""Read from SQL how near the records of two streams must be to meet.

ON o.key = p.key AND p.time BETWEEN o.time - INTERVAL 10 MINUTES AND o.time + INTERVAL 10 MINUTES

Any column of each may stand in place of its key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlglot import exp

_UNITS_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000}
_UNITS_MS |= {"DAY": 86_400_000}


class Meeting(NamedTuple):
    """The condition of a join of two streams."""

    keys: exp.Expression
    """The part of it about their keys."""
    within_ms: int


def meeting_of(on: Any, left: str, right: str) -> Meeting | None:
    """Return what a condition says of two aliases, None if it does not have that form."""
    if not isinstance(on, exp.And) or not isinstance(on.expression, exp.Between):
        return None
    between = on.expression
    low, high = between.args["low"], between.args["high"]
    for one, other in ((left, right), (right, left)):
        if _is_time(between.this, other):
            sides_ms = _apart_ms(low, exp.Sub, one), _apart_ms(high, exp.Add, one)
            if sides_ms[0] is not None and sides_ms[0] == sides_ms[1]:
                return Meeting(on.this, sides_ms[0])
    return None


def columns_of(keys: Any, left: str, right: str) -> tuple[str, str] | None:
    """Return the column of each alias in an equality, None if it is another condition."""
    sides: list[Any] = [keys.left, keys.right] if isinstance(keys, exp.EQ) else []
    found = {side.table.lower(): side.name for side in sides if isinstance(side, exp.Column)}
    return (found[left], found[right]) if found.keys() == {left, right} else None


def _apart_ms(bound: Any, kind: type[exp.Expression], alias: str) -> int | None:
    """Return how far a bound is from the time of an alias."""
    if not isinstance(bound, kind) or not _is_time(bound.this, alias):
        return None
    interval: Any = bound.args["expression"]
    return interval_ms(interval) if isinstance(interval, exp.Interval) else None


def interval_ms(found: Any) -> int | None:
    """Return how long an interval is, or a text such as `10 minutes`; None if it is neither."""
    if isinstance(found, exp.Interval) and isinstance(found.this, exp.Literal):
        number, unit = found.this.name, str(found.args.get("unit"))
    elif isinstance(found, exp.Literal) and found.is_string:
        number, _, unit = found.name.strip().partition(" ")
    else:
        return None
    unit_ms = _UNITS_MS.get(unit.strip().upper().removesuffix("S"))
    return int(number) * unit_ms if unit_ms is not None and number.isdecimal() else None


def _is_time(found: Any, alias: str) -> bool:
    return (
        isinstance(found, exp.Column)
        and found.name.lower() == "time"
        and found.table.lower() == alias
    )
