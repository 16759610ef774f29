"""Streams: records that happen; each may look up in a table as of its own time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn, Self

from headrace.contracts.errors import JobInvalid
from headrace.contracts.time import format_duration_ms
from headrace.spark_jobs.queries.described import (
    Columns,
    JoinHow,
    Source,
    milliseconds,
    refuse_clash,
    together,
)
from headrace.spark_jobs.queries.tables import Table
from headrace.spark_jobs.queries.windows import GroupableStream, MadeStream


@dataclass(frozen=True, kw_only=True)
class Stream(GroupableStream):
    """Records that happen, each once."""

    source: Source

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"the stream `{self.source.topic}`"

    @property
    def own_columns(self) -> Columns:
        """The fields of its values."""
        return self.source.columns

    @property
    def sources(self) -> tuple[Source, ...]:
        """The stream's own topic."""
        return (self.source,)

    def join_as_of(
        self,
        table: Table,
        *,
        on: str | None = None,
        how: JoinHow = "inner",
        grace: str | int | None = None,
        corrections: bool = False,
        history: str | None = None,
    ) -> JoinedStream:
        """Join each record with the row that a table had at the record's own time.

        Args:
            table: A table that remembers its past: one with a `retention`.
            on: The column of this stream that has the table's key; the record's key if not said.
            how: Whether a record without a row is left out, or stands alone.
            grace: Wait so long by the stream's own time; else until both inputs have passed it.
            corrections: Send a record again when a row comes late.
            history: A folder for a Delta table of all rows there ever were, for older records.
        """
        step = f"{self.title} joined as of"
        if not isinstance(table, Table):
            message = (
                f"{step} another query: only a table that is read from a topic remembers its past;"
                " write the other one to a topic, and read that as a table"
            )
            raise JobInvalid(message)
        if table.source.retention_ms is None:
            message = (
                f"{step} `{table.source.topic}`, which remembers only its latest rows; give that"
                " table a `retention`, such as 30d"
            )
            raise JobInvalid(message)
        if how not in {"inner", "left"}:
            message = f"{step} `{table.source.topic}` with `how={how}`; write inner or left"
            raise JobInvalid(message)
        if on is not None:
            self.refuse_missing(on, "join_as_of")
        refuse_clash(self, table, "join_as_of")
        grace_ms = None if grace is None else milliseconds(grace, "grace", step)
        return JoinedStream(
            stream=self,
            table=table,
            on=None if on is None or on.lower() == "key" else on,
            how=how,
            grace_ms=grace_ms,
            corrections=corrections,
            history=history,
        )

    def join_within(
        self,
        other: Stream,
        *,
        within: str | int,
        on: str | tuple[str, str] | None = None,
        how: Literal["inner", "left", "outer"] = "inner",
        grace: str | int | None = None,
    ) -> PairedStream:
        """Join each record with the records of another stream that have its key and are near.

        Args:
            other: Another stream; records meet by their keys.
            within: How far apart their times may be, before or after, such as `10m`.
            on: The column of this stream that has the other's key, or a column of each stream.
            how: Whether a record that meets none is left out, or stands alone: of this stream by
                `left`, of both by `outer`.
            grace: How far behind the highest time of its stream a record is on time, where no
                sidecar writes the progress of a stream.
        """
        step = f"`join_within` of {self.title}"
        if not isinstance(other, Stream):
            message = f"{step} takes another stream that is read from a topic; `join_as_of` a table"
            raise JobInvalid(message)
        if how not in {"inner", "left", "outer"}:
            message = f"{step} with `how={how}`; write inner, left or outer"
            raise JobInvalid(message)
        refuse_clash(self, other, "join_within")
        return PairedStream(
            left=self,
            right=other,
            within_ms=milliseconds(within, "within", step),
            on=_met_by(self, other, on, step),
            how=how,
            grace_ms=_grace_ms(self, other, grace, step),
        )

    def join(self, *_other: object, **_options: object) -> NoReturn:
        """Refuse: a stream has no rows that could change."""
        message = f"{self.title} cannot be joined as a table; `join_as_of` looks up in one"
        raise JobInvalid(message)

    join_on = join


@dataclass(frozen=True, kw_only=True)
class JoinedStream(GroupableStream, MadeStream):
    """A stream's records, each with the row that a table had at its time."""

    stream: Stream
    table: Table
    on: str | None
    how: JoinHow
    grace_ms: int | None
    corrections: bool
    history: str | None

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"`{self.stream.source.topic}` joined as of `{self.table.source.topic}`"

    @property
    def own_columns(self) -> Columns:
        """The columns of the stream and of the table."""
        return together(self.stream, self.table)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The table, which goes first at equal times, and the stream."""
        return (self.table.source, self.stream.source)

    def refuse_windows(self) -> None:
        """Refuse rows that leave again, or not by progress: their window may have left."""
        options = {
            "grace": self.grace_ms is not None,
            "corrections": self.corrections,
            "history": self.history is not None,
        }
        for name in (name for name, is_given in options.items() if is_given):
            message = (
                f"{self.title} with `{name}` cannot be grouped by window: its rows do not leave by"
                f" progress alone, so a window would never be over; leave `{name}` out"
            )
            raise JobInvalid(message)

    def filter(self, condition: object) -> Self:
        """Keep only rows of which a condition is true."""
        if self.corrections:
            message = (
                f"{self.title} leaves again with `corrections`, and a `filter` behind it would"
                " keep back that a row no longer holds; filter the stream before the join"
            )
            raise JobInvalid(message)
        return super().filter(condition)

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        waits = "until both inputs have passed its time"
        if self.grace_ms is not None:
            waits = f"for {format_duration_ms(self.grace_ms)} of the stream's own time"
        more = ", again when a row comes late" if self.corrections else ""
        step = f"join_as_of({self.table.source.topic}) by {self.on or 'key'}"
        more += f", older ones from {self.history}" if self.history else ""
        return [
            *(f"{self.table.source.topic}: {line}" for line in self.table.lines()),
            *(f"{self.stream.source.topic}: {line}" for line in self.stream.lines()),
            f"{step}, {self.how}; state: a record waits {waits}{more}",
            *super().lines(),
        ]


@dataclass(frozen=True, kw_only=True)
class PairedStream(GroupableStream, MadeStream):
    """Pairs of records of two streams with one key, whose times are near, and records alone."""

    left: Stream
    right: Stream
    within_ms: int
    on: tuple[str, str] | None
    """The columns by which records meet, of the left and of the right stream; None for keys."""
    how: Literal["inner", "left", "outer"]
    grace_ms: int

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"`{self.left.source.topic}` joined within a window with `{self.right.source.topic}`"

    @property
    def own_columns(self) -> Columns:
        """The columns of both streams."""
        return together(self.left, self.right)

    @property
    def lag_ms(self) -> int:
        """A record alone leaves when nothing can be within its window any more."""
        return self.grace_ms + (0 if self.how == "inner" else self.within_ms)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Both streams, the left one first."""
        return (self.left.source, self.right.source)

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        within = format_duration_ms(self.within_ms)
        by = "key" if self.on is None else " = ".join(self.on)
        step = f"join_within({self.right.source.topic}, {within}) by {by}"
        windows = 1 if self.how == "inner" else 2
        kept = format_duration_ms(windows * self.within_ms + self.grace_ms)
        return [
            *(f"{self.left.source.topic}: {line}" for line in self.left.lines()),
            *(f"{self.right.source.topic}: {line}" for line in self.right.lines()),
            f"{step}, {self.how}; state: each record until both inputs are {kept} past its time",
            *super().lines(),
        ]


def _met_by(
    left: Stream, right: Stream, on: str | tuple[str, str] | None, step: str
) -> tuple[str, str] | None:
    """Return the columns by which two streams meet, None if they are the keys of both."""
    if on is None:
        return None
    names = (on, "key") if isinstance(on, str) else tuple(on)
    if len(names) != 2 or not all(isinstance(name, str) for name in names):  # noqa: PLR2004 (streams)
        message = (
            f"{step} with `on={on!r}`: write a column of this stream that has the other's key, or a"
            ' column of each, such as `on=("customer", "payer")`; select one that has several in it'
        )
        raise JobInvalid(message)
    for stream, name in zip((left, right), names, strict=True):
        stream.refuse_missing(name, "join_within")
    return None if {name.lower() for name in names} == {"key"} else (names[0], names[1])


def _grace_ms(left: Stream, right: Stream, grace: str | int | None, step: str) -> int:
    if grace is None:
        return 0
    if left.source.pipeline is not None and right.source.pipeline is not None:
        message = (
            f"{step} with a `grace`: sidecars write the progress of both streams, and their"
            " `reorder` has the grace; leave `grace` out, or read a stream with `pipeline=None`"
        )
        raise JobInvalid(message)
    return milliseconds(grace, "grace", step)
