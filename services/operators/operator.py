"""The protocol of every operator, and what passes between two of them.

The law of this folder
    1. An operator decides; it never acts. No clock, randomness, log, thread or I/O of its own:
       the same batches over the same state give the same steps, byte for byte.
    2. It works on batches. How the input is cut into batches shows in no output.
    3. After `save` all of its state is in its view. A new operator over the same store goes on
       as if nothing had happened. If a view's changes are thrown away, the operator must be
       thrown away with them.
    4. Every output names the input that caused it, as an index into the batch the chain was given.
    5. Every record gets exactly one final verdict, or is held: `Counts.balance` is zero after
       every batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Protocol

from headrace.contracts.decision import Decision, Reason
from headrace.contracts.record import Record

NO_CAUSE = -1
"""The cause of a release that no record brought about."""


class Changes(NamedTuple):
    """The uncommitted changes of an operator."""

    rows: Mapping[bytes, bytes | None]
    drops: Sequence[tuple[bytes, bytes]]


class View(Protocol):
    """One operator's state: rows of bytes in byte order, seen with its own changes.

    Every key that it takes and returns begins with `prefix`: operators build a whole key, once.
    """

    prefix: bytes

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""

    def put_many(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Set rows; None deletes."""

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order, of a view that does not change."""

    def drop(self, start: bytes, end: bytes) -> None:
        """Drop all rows with start <= key < end, including those put in this view before."""

    def changes(self) -> Changes:
        """Return the puts and drops so far that are not committed."""

    def go_back(self, to: Changes) -> None:
        """Undo the puts and drops since then."""


@dataclass(slots=True)
class Origins:
    """The origins of records, by columns."""

    lanes: list[int] = field(default_factory=list)
    """The source partition of each."""
    times_ms: list[int] = field(default_factory=list)
    """How far that partition was with it."""

    def extend(self, more: Origins) -> None:
        """Add the origins of more records."""
        self.lanes += more.lanes
        self.times_ms += more.times_ms


@dataclass(slots=True)
class Batch:
    """Records on their way to an operator, in order.

    `causes[i]` is the index, in the batch the chain was given, of the record that caused
    `records[i]`. `olds` is None where records are events; behind a table or an aggregate
    `olds[i]` is the value that `records[i]` replaces. Between a repartition and the operator that
    brings its records into one order, `origins` says where they came from; elsewhere it is None.
    """

    records: list[Record]
    causes: list[int]
    olds: list[bytes | None] | None = None
    origins: Origins | None = None
    is_part: bool = False
    """Whether this is one record of a batch whose rest follows, record by record."""

    @classmethod
    def of(cls, records: list[Record]) -> Batch:
        """Make a batch fresh from the source: every record is its own cause."""
        return cls(records, list(range(len(records))))

    @property
    def has_origins(self) -> bool:
        """Whether each record has an origin; behind a merge none has."""
        return self.origins is not None and len(self.origins.lanes) == len(self.records)

    def carry_origins(self, before: Batch) -> None:
        """Take each record's origin from the batch that these records are a part of."""
        assert before.origins is not None
        if self.causes == before.causes:
            self.origins = before.origins
            return
        self.origins = before.origins_of(self.causes)

    def origins_of(self, causes: list[int]) -> Origins:
        """Return the origins of the records that have these causes here."""
        assert self.origins is not None
        lanes, times_ms = self.origins.lanes, self.origins.times_ms
        place_of = dict(zip(self.causes, count()))
        places = [place_of[cause] for cause in causes]
        return Origins([lanes[place] for place in places], [times_ms[place] for place in places])

    def append(self, record: Record, cause: int, old: bytes | None) -> None:
        """Add one more update of a table."""
        self.records.append(record)
        self.causes.append(cause)
        if self.olds is not None:
            self.olds.append(old)

    def extend(self, records: list[Record], causes: list[int], olds: list[bytes | None]) -> None:
        """Add more updates of a table."""
        self.records += records
        self.causes += causes
        if self.olds is not None:
            self.olds += olds


class Aside(NamedTuple):
    """A record that leaves by the side: to the late topic or the dead-letter topic."""

    cause: int
    operator: str
    record: Record
    reason: Reason
    detail: str
    """A clause for people: what was wrong with the record."""
    exception: str = ""
    """The class of the exception, where a step failed on the record."""
    stacktrace: str = ""


class Failure(NamedTuple):
    """The operator cannot go on: the step has records that left before, the rest is discarded."""

    cause: int
    """Index of the record that could not be held."""
    operator: str
    sentence: str


@dataclass(slots=True)
class Step:
    """The output of an operator (or a chain of them) for one batch."""

    forwarded: Batch
    late: list[Aside] = field(default_factory=list)
    dead: list[Aside] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    failure: Failure | None = None

    def go_on(self, next_step: Step) -> None:
        """Add the next operator's step over the forwarded records; this is the step of both."""
        if self.forwarded.has_origins and next_step.forwarded.origins is None:
            next_step.forwarded.carry_origins(self.forwarded)
        self.forwarded = next_step.forwarded
        self.late += next_step.late
        self.dead += next_step.dead
        self.decisions += next_step.decisions
        if next_step.failure is not None:
            self.failure = next_step.failure
            self._forget_after(next_step.failure.cause)

    def _forget_after(self, cause: int) -> None:
        """Forget records that an earlier operator put aside behind the cause of a later failure."""
        self.late = [aside for aside in self.late if aside.cause <= cause]
        self.dead = [aside for aside in self.dead if aside.cause <= cause]
        self.decisions = [decision for decision in self.decisions if decision.cause <= cause]


class Operator(Protocol):
    """One operator over one partition."""

    name: str
    counts: Counts

    def process(self, batch: Batch) -> Step:
        """Decide about every record of the batch."""

    def save(self) -> None:
        """Put into the view all state that was not put yet. Called before every commit."""


@dataclass(slots=True)
class Counts:
    """How many records got which verdict since the operator was made."""

    held: int
    """Held now; `held_before` counts those held when the operator was made."""
    held_before: int = field(init=False)
    taken: int = 0
    forwarded: int = 0
    merged: int = 0
    late: int = 0
    dead: int = 0
    failed: int = 0
    """The dead records on which the operator failed."""
    emitted: int = 0
    """New records that an aggregate made; they did not come in."""
    dropped: dict[Reason, int] = field(default_factory=dict)
    windows_refused: int = 0
    """Closed windows that a record could not enter, one count a window, as KIP-328 counts."""

    def __post_init__(self) -> None:
        self.held_before = self.held

    def drop(self, reason: Reason, records: int = 1) -> None:
        """Count records that end here."""
        self.dropped[reason] = self.dropped.get(reason, 0) + records

    def balance(self) -> int:
        """Return zero, unless a record was lost or invented."""
        final = self.forwarded + self.merged + self.late + self.dead + sum(self.dropped.values())
        return self.held_before + self.taken - final - self.held
