"""Describe a job's topology: it can be sent to a worker, and opened over any state.

    Topic -- FilterStep, MapStep, ReadAgainStep, JoinStep, ForeignKeyStep, AggregateStep: tables
                `-- LookUp: a stream whose records look up in one of them
    StreamJoin: two streams whose records meet within a window
    WindowStep: a stream, or the rows that one of these two releases, folded by group and window

A step's name decides where its state is, so it may not change in the life of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.versioned import aggregation as folding
from headrace.spark_jobs.versioned.foreign_key import ForeignKeyJoin
from headrace.spark_jobs.versioned.progress import STORED_KINDS
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import RowOf, RowsOf, StreamTableJoin
from headrace.spark_jobs.versioned.table_table import TableTableJoin
from headrace.spark_jobs.versioned.tables import (
    Derived,
    Filtered,
    Restored,
    Source,
    Storage,
    Table,
    Versioned,
)
from headrace.spark_jobs.versioned.window_fold import WindowFold
from headrace.spark_jobs.versioned.window_join import WindowJoin

if TYPE_CHECKING:
    from headrace.spark_jobs.operators.running import Running
    from headrace.spark_jobs.versioned.aggregation import Regroup
    from headrace.spark_jobs.versioned.changes import Updates
    from headrace.spark_jobs.versioned.table_table import Joiner
    from headrace.spark_jobs.versioned.totals import Aggregation
    from headrace.spark_jobs.versioned.window_fold import WindowFolds
    from headrace.spark_jobs.versioned.window_join import Joiner as WindowJoiner


class Step(Protocol):
    """One table of a topology."""

    @property
    def name(self) -> str:
        """The name of its state, and its name in messages."""

    def open(self, state: TaskState) -> Table:
        """Open the table over the state of a task, with all tables above it."""


class Stage(Protocol):
    """A step that sends rows to other tasks (see `stages`)."""

    @property
    def name(self) -> str:
        """The name of its state, and its name in messages."""

    def open(self, state: TaskState) -> Running:
        """Open the stage over the state of a task, with all tables above it."""


@dataclass(frozen=True)
class TableStep:
    """Says which changes of a key leave a table."""

    updates: Updates = field(default="each", kw_only=True)


@dataclass(frozen=True)
class Topic(TableStep):
    """A table that is read from an input; if only its newest versions leave, by `newest_alone`."""

    name: str
    input: int
    storage: Storage | None = None
    newest_alone: bool = False

    def open(self, state: TaskState) -> Table:
        """Open the source of that input."""
        return Source(state, self.name, self.input, self.storage)


@dataclass(frozen=True)
class FilterStep(TableStep):
    """A table that keeps only some values of another."""

    name: str
    parent: Step
    keeps: Callable[[bytes, bytes], bool]
    storage: Storage | None = None

    def open(self, state: TaskState) -> Table:
        """Open the filter behind its parent."""
        return Filtered(state, self.name, self.parent.open(state), self.keeps, self.storage)


@dataclass(frozen=True)
class MapStep(TableStep):
    """A table of values computed from those of another; None is a tombstone."""

    name: str
    parent: Step
    compute: Callable[[bytes, bytes], bytes | None]
    storage: Storage | None = None

    def open(self, state: TaskState) -> Table:
        """Open the computed table behind its parent."""
        return Derived(state, self.name, self.parent.open(state), self.compute, self.storage)


@dataclass(frozen=True)
class ReadAgainStep(TableStep):
    """A table of another's changes, as if a topic stood between the two."""

    name: str
    parent: Step
    storage: Storage | None = None

    def open(self, state: TaskState) -> Table:
        """Open the table behind its parent."""
        return Restored(state, self.name, self.parent.open(state), self.storage)


@dataclass(frozen=True)
class JoinStep(TableStep):
    """Two tables joined by their keys."""

    name: str
    left: Step
    right: Step
    joiner: Joiner
    join: Literal["inner", "left", "outer"] = "inner"

    def open(self, state: TaskState) -> Table:
        """Open the join behind both tables."""
        left, right = self.left.open(state), self.right.open(state)
        return TableTableJoin(
            state,
            self.name,
            left,
            right,
            joiner=self.joiner,
            join=self.join,
            last_alone=self.updates == "last",
        )


@dataclass(frozen=True)
class ForeignKeyStep(TableStep):
    """Two tables; the rows of the left one point at those of the right one."""

    name: str
    left: Step
    right: Step
    foreign_key_of: Callable[[bytes, bytes], bytes | None]
    joiner: Joiner
    join: Literal["inner", "left"] = "inner"

    def open(self, state: TaskState) -> Table:
        """Open the join behind both tables, which are in the same task."""
        return ForeignKeyJoin(
            state,
            self.name,
            self.left.open(state),
            self.right.open(state),
            foreign_key_of=self.foreign_key_of,
            joiner=self.joiner,
            join=self.join,
        )


@dataclass(frozen=True)
class AggregateStep(TableStep):
    """The rows of a table, grouped and folded into one value a group."""

    name: str
    parent: Step
    regroup: Regroup
    aggregation: Aggregation
    storage: Storage | None = None

    def open(self, state: TaskState) -> Table:
        """Open the aggregation behind its parent; all rows of a group are in one task."""
        parent = self.parent.open(state)
        return folding.Aggregated(
            state, self.name, parent, self.regroup, self.aggregation, self.storage
        )


@dataclass(frozen=True)
class LookUp:
    """A stream; each of its records meets a table's value at its own time."""

    name: str
    table: Step
    stream: int
    """The number of the stream's input; tables have lower ones, for they go first on ties."""
    join: Literal["inner", "left"] = "inner"
    grace_ms: int | None = None
    release: Literal["stream-time", "progress"] = "stream-time"
    corrects: bool = False
    """Whether a late version is joined again with the records that should have met it."""
    asks_cold: bool = False
    """Whether records older than the table's history leave as `COLD`, to be looked up elsewhere."""
    says_progress: bool = False
    """Whether a task says, behind the rows that it releases, how far it is."""
    meets_by: int | None = None
    """A number for the column that its records have as their keys; other ones cannot go on."""
    meets_as: int | None = None
    """A number for the texts of those keys: of times, it tells the zone."""
    row_of: RowOf | None = None
    """Makes the value of a joined row; without it, both values leave side by side."""
    rows_of: RowsOf | None = None
    """Makes the fields of many rows at once, as `row_of` makes their JSON; None where it cannot."""

    def open(self, state: TaskState) -> StreamTableJoin:
        """Open the join behind its table."""
        return StreamTableJoin(
            state,
            self.name,
            self.table.open(state),
            stream=self.stream,
            join=self.join,
            grace_ms=self.grace_ms,
            release=self.release,
            corrects=self.corrects,
            asks_cold=self.asks_cold,
            row_of=self.row_of,
            rows_of=self.rows_of,
        )


@dataclass(frozen=True)
class StreamJoin:
    """Two streams; records of one key meet if their times are near. It releases by progress."""

    name: str
    streams: tuple[int, int]
    """The numbers of the left and of the right input."""
    joiner: WindowJoiner
    within_ms: int
    """How far apart their times may be."""
    join: Literal["inner", "left", "outer"] = "inner"
    grace_ms: int = 0
    """How far behind progress a record is on time, where no sidecar writes it."""
    says_progress: bool = False
    """Whether a task says, behind the rows that it releases, how far it is."""
    columns: tuple[int, int] | None = None
    """Numbers for the columns that its records have, below zero for all that were read."""
    meets_as: int | None = None
    """A number for the texts of its records' keys: of times, it tells the zone."""

    @property
    def release(self) -> Literal["progress"]:
        """Progress decides when a row leaves."""
        return "progress"

    def open(self, state: TaskState) -> WindowJoin:
        """Open the join over the state of a task."""
        return WindowJoin(
            state,
            self.name,
            self.streams,
            joiner=self.joiner,
            join=self.join,
            within_ms=self.within_ms,
            grace_ms=self.grace_ms,
        )


@dataclass(frozen=True)
class WindowStep:
    """A stream whose records are folded by group and window; a window leaves by progress."""

    name: str
    stream: int
    """The number of the input."""
    size_ms: int
    regroup: Regroup
    folds: WindowFolds
    topic: str
    """The topic whose dead letters get a row that no sink takes."""
    lag_ms: int = 0
    """How far behind progress a record still comes."""
    is_behind: bool = False
    """Whether its records are the rows of a join, which counted their lateness."""

    @property
    def release(self) -> Literal["progress"]:
        """Progress decides when a window leaves."""
        return "progress"

    def open(self, state: TaskState) -> WindowFold:
        """Open the windows over the state of a task."""
        return WindowFold(
            state,
            self.name,
            size_ms=self.size_ms,
            lag_ms=self.lag_ms,
            regroup=self.regroup,
            folds=self.folds,
        )


_RESERVED = frozenset(":/")
OWN_NUMBERS = frozenset({"task", "step", "option", *STORED_KINDS})
"""The first words of numbers that a task keeps beside those of its steps."""
Topology = Step | Stage | LookUp | StreamJoin | WindowStep
"""The computation of one operator."""


def waits(topology: object) -> TypeGuard[LookUp | StreamJoin | WindowStep]:
    """Return whether a topology waits for the progress of its inputs."""
    return isinstance(topology, LookUp | StreamJoin | WindowStep) and topology.release == "progress"


def inputs_of(topology: Topology) -> set[int]:
    """Return the numbers of the inputs that a topology reads."""
    inputs = {step.input for step in steps_of(topology) if isinstance(step, Topic)}
    if isinstance(topology, LookUp | WindowStep):
        inputs.add(topology.stream)
    if isinstance(topology, StreamJoin):
        inputs |= {*topology.streams}
    return inputs


def steps_of(topology: Topology) -> Iterator[Topology]:
    """Yield the steps of a topology, the ones above first."""
    for name in above(topology):
        yield from steps_of(getattr(topology, name))
    yield topology


def above(topology: object) -> list[str]:
    """Return the names of the attributes that hold the steps above."""
    return [name for name in ("parent", "left", "right", "table") if hasattr(topology, name)]


def verify(topology: Topology) -> None:
    """Refuse a topology that cannot work, before any worker receives it."""
    names: set[str] = set()
    for step in steps_of(topology):
        if step.name in names:
            message = (
                f"two steps are called `{step.name}`, and state is found by name;"
                " give one of them another"
            )
            raise TopologyRefused(message)
        if not step.name or _RESERVED & set(step.name):
            message = (
                f"a step cannot be called `{step.name}`, for `:` and `/` stand between the names"
                " of state; write `-` instead"
            )
            raise TopologyRefused(message)
        if step.name in OWN_NUMBERS:
            message = (
                f"a step cannot be called `{step.name}`, for a task keeps numbers of its own under"
                " that name; give the step another"
            )
            raise TopologyRefused(message)
        names.add(step.name)
    _refuse_uncorrectable(topology)
    _refuse_never_cold(topology)
    topology.open(TaskState(MemoryRows()))


def _refuse_uncorrectable(topology: Topology) -> None:
    """Refuse corrections by a table whose keys differ from those of its records."""
    if not isinstance(topology, LookUp) or not topology.corrects:
        return
    for step in steps_of(topology.table):
        if isinstance(step, AggregateStep | ForeignKeyStep):
            message = (
                f"`{topology.name}` is to correct what it joined, but `{step.name}` gives the table"
                " other keys than its records have, so it is not known what a late one changes;"
                " join without corrections"
            )
            raise TopologyRefused(message)


def _refuse_never_cold(topology: Topology) -> None:
    """Refuse a cold history for a table that is computed: a history has the versions of a topic."""
    if not isinstance(topology, LookUp) or not topology.asks_cold:
        return
    table = topology.table
    if not isinstance(table, Topic) or not isinstance(table.storage, Versioned):
        message = (
            f"`{topology.name}` is to fall back to a cold history, which has the versions of a"
            f" topic, but `{table.name}` is not a versioned table read from one; look up in such a"
            " table, or do without"
        )
        raise TopologyRefused(message)
