"""Times on the command line, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.problem_text import show
from headrace.spark_jobs.jobs.filled import Period

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def period_of(from_: str | None, to: str | None) -> Period:
    """Return the period between two times, of which each may be left out."""
    times_ms = [
        None if text is None else _time_ms(option, text)
        for option, text in (("--from", from_), ("--to", to))
    ]
    return Period(*times_ms)


def _time_ms(option: str, text: str) -> int:
    """Return a time of ISO 8601 in milliseconds since 1970; without a zone, it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"`{option}` names no time: {show(text)}; write such as 2026-11-01, 2026-11-01T12:30Z"
            " or 2026-11-01T12:30+02:00"
        )
        raise SettingsInvalid(message) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)
