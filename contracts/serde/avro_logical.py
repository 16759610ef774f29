"""Avro's logical types, read so that no value is lost.

The library's own readers round a decimal of more digits than its schema says, so that two ids would
be one. They fail for a time behind the year 9999, and with it for all other fields of the value.
Ours stand beside them, under names of their own, since other modules of a user's process read, too.

A year that Python has no date for has a sign and as many digits as it needs, as in Java and in ISO
8601: `+294247-01-10`. A time of the day that is none has more than 23 hours, or a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Any

from fastavro.read import LOGICAL_READERS

_OURS = "headrace-"
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH, _MIDNIGHT = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MICROS = 86_400_000_000
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats itself after so many years, which have so many days."""


def our_name(logical: str) -> str:
    """Return the name under which our reader stands; the same name where we have none."""
    return f"{_OURS}{logical}" if logical == "decimal" or logical in _TIMES else logical


def _decimal(written: bytes, schema: Mapping[str, Any] | None, _reader: object) -> Decimal:
    assert schema is not None
    unscaled = int.from_bytes(written, "big", signed=True)
    return _EXACT.create_decimal(unscaled).scaleb(-schema.get("scale", 0), _EXACT)


def _date(days: int) -> str:
    cycles, near_days = divmod(days, _CYCLE_DAYS)
    near = _EPOCH + timedelta(near_days)
    year = near.year + cycles * _CYCLE_YEARS
    is_known = MINYEAR <= year <= MAXYEAR
    return f"{year:04d}{near:-%m-%d}" if is_known else f"{year:+05d}{near:-%m-%d}"


def _moment(micros: int) -> str:
    days, of_day_micros = divmod(micros, _DAY_MICROS)
    return f"{_date(days)}T{_time_of_day(of_day_micros)}"


def _time_of_day(micros: int) -> str:
    if 0 <= micros < _DAY_MICROS:
        return (_MIDNIGHT + timedelta(microseconds=micros)).time().isoformat()
    minutes, of_minute_micros = divmod(abs(micros), 60_000_000)
    seconds, left_micros = divmod(of_minute_micros, 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{left_micros:06}"


_TIMES: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "date": ("int", _date),
    "time-millis": ("int", lambda millis: _time_of_day(millis * 1_000)),
    "time-micros": ("long", _time_of_day),
    "timestamp-micros": ("long", lambda micros: f"{_moment(micros)}+00:00"),
    "local-timestamp-millis": ("long", lambda millis: _moment(millis * 1_000)),
    "local-timestamp-micros": ("long", _moment),
}
"""By logical type, the type that holds it, and its text."""


def _register() -> None:
    """Put our readers into the library's table; it hands them the schemas as well."""
    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{_OURS}decimal"] = _decimal
    for logical, (kind, text_of) in _TIMES.items():
        LOGICAL_READERS[f"{kind}-{_OURS}{logical}"] = partial(_text, text_of)


def _text(text_of: Callable[[int], str], written: int, _writer: object, _reader: object) -> str:
    return text_of(written)


_register()
