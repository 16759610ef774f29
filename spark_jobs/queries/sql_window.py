"""Read from SQL the window by which a stream is grouped: `window(time, '1 hour')`."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.sql_within import interval_ms
from headrace.spark_jobs.queries.windows import Window


def window_of(found: Any) -> tuple[exp.Column, Window] | None:
    """Return the time and the window that an expression of a GROUP BY names, None if it is none.

    The caller checks whose time it is.
    """
    if not isinstance(found, exp.Anonymous) or found.name.lower() != "window":
        return None
    time, size = (*found.expressions, None, None)[:2]
    size_ms = None
    if len(found.expressions) == 2 and isinstance(time, exp.Column):  # noqa: PLR2004 (time, size)
        size_ms = interval_ms(size) if time.name.lower() == "time" else None
    if not size_ms or not isinstance(time, exp.Column):
        message = (
            f"`{found.sql('spark')}` is no window of a stream; write the row's own time and a size,"
            " such as `window(time, '1 hour')`"
        )
        raise JobInvalid(message)
    return time, Window(size_ms)
