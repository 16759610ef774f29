"""Windows of a stream: its rows, folded by group and time; each window leaves when it is over.

payments.group_by("account", hr.window("1h")).agg(hr.sum("cents"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from headrace.contracts.errors import JobInvalid
from headrace.contracts.time import format_duration_ms
from headrace.spark_jobs.queries.aggregates import Aggregate
from headrace.spark_jobs.queries.described import (
    Columns,
    Query,
    Source,
    milliseconds,
)
from headrace.spark_jobs.queries.names import OWN
from headrace.spark_jobs.queries.tables import aggregates_of, refuse_unknown_groups

BOUNDS = ("window_start", "window_end")
"""The columns of a window; its end belongs to the next one."""


@dataclass(frozen=True)
class Window:
    """Windows of one size, each where the last one ended; the first began in 1970."""

    size_ms: int

    def __str__(self) -> str:
        """Return it as a user writes it."""
        return f"window({format_duration_ms(self.size_ms)})"


def window(size: str | int) -> Window:
    """Cut a stream into windows of this size, such as `1h`, for `group_by`."""
    size_ms = milliseconds(size, "size", "`window`")
    if not size_ms:
        message = "a `window` has no size; write one, such as `window('1h')`"
        raise JobInvalid(message)
    return Window(size_ms)


@dataclass(frozen=True, kw_only=True)
class MadeStream(Query):
    """A stream that a query made: what it cannot do in the same query is refused."""

    def join_as_of(self, *_other: object, **_options: object) -> NoReturn:
        """Refuse: a query has one join of a stream."""
        message = (
            f"{self.title} cannot be joined once more in the same query; write it to a topic, and"
            " join that by a query of its own"
        )
        raise JobInvalid(message)

    join_within = join = join_on = join_as_of

    def group_by(self, *columns: str | Window) -> Any:  # noqa: ARG002
        """Refuse: a query groups once."""
        message = (
            f"{self.title} cannot be grouped once more in the same query; write it to a topic, and"
            " group that by a query of its own"
        )
        raise JobInvalid(message)


@dataclass(frozen=True, kw_only=True)
class GroupableStream(Query):
    """A stream whose rows leave by progress, and can be folded by window."""

    def group_by(self, *columns: str | Window) -> StreamGroups:
        """Group rows by the values of columns and by one `window`, for `agg` to fold them."""
        windows = [each for each in columns if isinstance(each, Window)]
        names = tuple(each for each in columns if isinstance(each, str))
        if len(windows) != 1 or len(names) != len(columns) - 1:
            message = (
                f"{self.title} never ends, and neither would its groups; name one window of time"
                " beside the columns, such as `group_by('account', hr.window('1h'))`"
            )
            raise JobInvalid(message)
        if not names:
            message = (
                f"`group_by` of {self.title} names no column beside its window; name at least one"
            )
            raise JobInvalid(message)
        refuse_unknown_groups(self, names)
        self.refuse_windows()
        return StreamGroups(self, names, windows[0])

    def refuse_windows(self) -> None:
        """Refuse to be grouped, if rows may come behind progress."""

    @property
    def lag_ms(self) -> int:
        """How far behind the progress of the inputs a row may still come."""
        return 0


@dataclass(frozen=True)
class StreamGroups:
    """A stream's rows, grouped by the values of columns and by window."""

    stream: GroupableStream
    by: tuple[str, ...]
    window: Window

    def agg(self, *unnamed: Aggregate, **named: Aggregate) -> WindowedStream:
        """Fold the rows of each group and window; a keyword or `.alias` names each aggregate."""
        step = f"group_by({', '.join(self.by)}, {self.window})"
        aggregates = aggregates_of(self.stream, step, (*self.by, *BOUNDS), unnamed, named)
        return WindowedStream(
            stream=self.stream, by=self.by, window=self.window, aggregates=aggregates
        )


@dataclass(frozen=True, kw_only=True)
class WindowedStream(MadeStream):
    """A row for each group and window: the columns, the window's bounds, and the aggregates."""

    stream: GroupableStream
    by: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]

    @property
    def title(self) -> str:
        """Its name in messages."""
        by = ", ".join(f"`{each}`" for each in self.by)
        return f"{self.stream.title} grouped by {by} and `{self.window}`"

    @property
    def own_taken(self) -> set[str]:
        """Of a record's own columns, those that it groups by or folds."""
        taken = (*self.by, *(each.column or "" for each in self.aggregates))
        return {name.lower() for name in taken} & {"key", "time"}

    @property
    def own_columns(self) -> Columns:
        """The columns it is grouped by, the window's bounds, and its aggregates."""
        by = (each for each in self.by if each not in OWN)
        return (*by, *BOUNDS, *(each.name for each in self.aggregates))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the grouped stream."""
        return self.stream.sources

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        folded = ", ".join(str(each) for each in self.aggregates)
        step = f"group_by({', '.join(self.by)}, {self.window}).agg({folded})"
        inputs, have, are = (
            ("the input", "has", "is") if len(self.sources) == 1 else ("both inputs", "have", "are")
        )
        lag_ms = self.stream.lag_ms
        passed = f"{are} {format_duration_ms(lag_ms)} past" if lag_ms else f"{have} passed"
        state = f"state: a row a group, until {inputs} {passed} the window's end"
        return [*self.stream.lines(), f"{step}; {state}", *super().lines()]
