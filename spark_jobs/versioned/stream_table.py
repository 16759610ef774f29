"""The stream-table join: each stream record meets the table's value at its own time.

    without grace   a record is joined when it arrives
    stream time     it is held until a record of the stream is `grace` later (KIP-923)
    progress        it is held until all inputs have passed its time, as the caller says

By stream time, output follows Kafka Streams' to the letter (rules D1 to D8). By progress, output
does not depend on how far one input was read ahead of the other, or one partition ahead of the
next: records leave before progress moves, those of one time and key by partition and offset, and
the table's history also expires by progress, not by the table's own timestamps.

Only the stream decides when a record leaves. So the join first plans a batch in columns: the step
in which each record leaves. Then the table takes the batch and answers each look-up as of its step.
A topic's versioned table, filtered and mapped or not, does that at once (`at_once`). Any other
table does it one after the other (`schedule`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from headrace.contracts.errors import TopologyRefused
from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.versioned.arrival import Arrivals
from headrace.spark_jobs.versioned.at_once import Answers, LookUps
from headrace.spark_jobs.versioned.corrections import Correction, Corrections
from headrace.spark_jobs.versioned.functions import as_value, of_step_for_each
from headrace.spark_jobs.versioned.grace import HeldRecords, Leaving
from headrace.spark_jobs.versioned.records import Records, are_present, objects
from headrace.spark_jobs.versioned.schedule import Schedule
from headrace.spark_jobs.versioned.tables import Derived, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.functions import EachAnswer, StepFailed
    from headrace.spark_jobs.versioned.records import Objects
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.tables import Table

SLICES_PER_GRACE = 16
PROGRESS_SLICE_MS = 60_000
NO_PROGRESS_MS = -(1 << 63)
"""Before any progress no record is late."""

RowOf = Callable[[bytes | None, bytes, bytes | None], bytes | None]
"""Makes the value of a row of a record's key and value, and the table's value."""
RowsOf = Callable[["Objects", "Objects", pa.LargeBinaryArray], pa.Array | None]
"""Makes many rows at once, of keys, values and the table's values; None if it cannot make these.

Rows are structs of their fields, or bytes if they are no JSON where they leave. A row is null if it
is left out; `row_of` answers None then.
"""
_NO_PLACES = np.zeros(0, np.int64)
_NO_RECORDS = Records.of([])


@dataclass(slots=True)
class Matches:
    """Joined records in the order in which they leave, in columns."""

    causes: NDArray[np.int64] = field(default_factory=lambda: _NO_PLACES)
    """Index, in the batch, of the arrival that released the record."""
    records: Records = field(default_factory=lambda: _NO_RECORDS)
    table_values: pa.LargeBinaryArray = field(
        default_factory=lambda: pa.array([], pa.large_binary())
    )
    """The table's value for each; null only in a left join."""
    rows: Objects | None = None
    """The value of each row, if the join makes them one by one."""
    made: pa.Array | None = None
    """Each row as `RowsOf` makes it, if the join makes them at once."""
    late: NDArray[np.int64] = field(default_factory=lambda: _NO_PLACES)
    """Index, in the batch, of each late record."""
    cold_causes: NDArray[np.int64] = field(default_factory=lambda: _NO_PLACES)
    """As `causes`, of the records that should ask a cold history."""
    cold: Records = field(default_factory=lambda: _NO_RECORDS)
    """Records older than the table's history of their key."""
    corrections: list[Correction] = field(default_factory=list)
    """Corrections of records that left before; each follows the row that it corrects."""
    corrected_rows: Objects | None = None
    """As `rows`, of the corrections."""
    failed: list[tuple[Record, StepFailed]] = field(default_factory=list)
    """Records whose look-up failed, and how."""


class StreamTableJoin:
    """One stream joined to one table, inner or left."""

    def __init__(  # noqa: PLR0913 (each is one decision of the user)
        self,
        state: TaskState,
        name: str,
        table: Table,
        *,
        stream: int,
        join: Literal["inner", "left"],
        grace_ms: int | None = None,
        release: Literal["stream-time", "progress"] = "stream-time",
        corrects: bool = False,
        asks_cold: bool = False,
        row_of: RowOf | None = None,
        rows_of: RowsOf | None = None,
    ) -> None:
        """Join the input number `stream` to a table.

        By progress, `grace_ms` only says how far back the table must be able to look. `corrects`
        keeps records that left, to correct them when an older version arrives later. `asks_cold`
        hands records on that are older than the table's history, instead of joining them with
        nothing. `row_of` makes those rows one by one that `rows_of` does not make at once.
        """
        self._name = name
        self._state = state
        self._table = table
        self._stream = stream
        self._left = join == "left"
        self._asks_cold = asks_cold
        self._each_row_of = None if row_of is None else of_step_for_each(name, row_of, as_value)
        self._rows_of = rows_of
        self._by_progress = release == "progress"
        self._grace_ms = grace_ms
        table.make_readable()
        if grace_ms is not None or self._by_progress:
            _refuse_unfit(table, name, grace_ms)
        if corrects and not table.versioned:
            message = (
                f"`{name}` is to correct what it joined, but the table `{table.name}` is not"
                " versioned, so nothing can come before what it knows; give it a history"
                " retention, or join without corrections"
            )
            raise TopologyRefused(message)
        corrections = Corrections(state, f"{name}:past", table) if corrects else None
        self._schedule = Schedule(table, corrections, asks_cold=asks_cold)
        self._at_once: Source | Derived | None = None
        if isinstance(table, Source | Derived) and table.meets_at_once and not corrects:
            self._at_once = table
        # The largest timestamp ever held, or the progress reached.
        self._time_name = f"{name}:progress_ms" if self._by_progress else f"{name}:time_ms"
        start_ms = NO_PROGRESS_MS if self._by_progress else NO_TIME_MS
        self._time_ms = state.numbers.get(self._time_name, start_ms)
        slice_ms = PROGRESS_SLICE_MS if grace_ms is None else 1 + grace_ms // SLICES_PER_GRACE
        self.held = HeldRecords(state, f"{name}:held", slice_ms)
        if self._by_progress:
            for store in table.versioned_stores():
                store.follows_progress = True

    def process(self, arrivals: Sequence[Arrival]) -> Matches:
        """Take a batch of both inputs in its order; return the joined records, in order."""
        arrivals = Arrivals.of(arrivals)
        is_stream = arrivals.inputs == self._stream
        places = np.flatnonzero(is_stream)
        records = arrivals.records.take(places)
        has_value, has_key = are_present(records.values), are_present(records.keys)
        joins = has_value & has_key
        keyless = places[has_value & ~has_key]
        matches = Matches()
        leaving = self._leaving(places[joins], records.take(joins), matches)
        dropped = len(keyless)
        if self._left and dropped:
            unmet = arrivals.records.take(keyless)
            leaving += Leaving(keyless, np.zeros(dropped, np.int64), unmet)
            dropped = 0
            if self._by_progress:
                # A record that leaves at once may be behind progress like any other.
                behind = keyless[unmet.times_ms < self._time_ms]
                matches.late = np.sort(np.concatenate([matches.late, behind]))
        self._meet(arrivals, np.flatnonzero(~is_stream), leaving, matches)
        self._state.count(f"{self._name}:late", len(matches.late))
        self._state.count(f"{self._name}:taken", len(places))
        self._state.count(f"{self._name}:dropped:null-value", int(np.sum(~has_value)))
        self._state.count(f"{self._name}:dropped:null-key", dropped)
        return matches

    def advance(self, progress_ms: int, cause: int) -> Matches:
        """Release records that progress has passed: no earlier record on time can come."""
        matches = Matches()
        if progress_ms <= self._time_ms:
            return matches
        released = self.held.release(progress_ms - 1)
        leaving = Leaving.of(released, np.full(len(released.records), cause, np.int64))
        self._meet(Arrivals.of([]), _NO_PLACES, leaving, matches)
        self._time_ms = self._state.numbers[self._time_name] = progress_ms
        for store in self._table.versioned_stores():
            store.time_ms = progress_ms
        return matches

    def balance(self) -> int:
        """Return zero, unless a stream record was lost or invented."""
        return self._state.balance(self._name, self.held.count)

    def _leaving(self, own_steps: NDArray[np.int64], records: Records, matches: Matches) -> Leaving:
        """Return the records that leave in this batch, earlier ones too; hold the others."""
        waits = self._by_progress or self._grace_ms or self.held.count
        if not len(records) or not waits:
            # With no grace, or one of zero, a record leaves in the step in which it enters.
            return Leaving(own_steps, own_steps, records)
        times = records.times_ms
        leaving_at = np.arange(len(times))
        if self._by_progress:
            on_time = times >= self._time_ms
            leaves = ~on_time
            earlier = None
        else:
            highest = np.maximum(np.maximum.accumulate(times), self._time_ms)
            due = highest - (self._grace_ms or 0)
            on_time = times >= due
            # A late record would leave before its own step.
            leaving_at = np.maximum(leaving_at, np.searchsorted(due, times))
            leaves = leaving_at < len(times)
            self._time_ms = self._state.numbers[self._time_name] = int(highest[-1])
            earlier = self._earlier(due, own_steps)
        matches.late = own_steps[~on_time]
        arrivals = self.held.arrivals + np.cumsum(on_time)
        self.held.arrivals = int(arrivals[-1])
        self.held.hold(arrivals[~leaves], records.take(~leaves))
        leaving = Leaving(own_steps[leaving_at[leaves]], arrivals[leaves], records.take(leaves))
        return leaving if earlier is None else earlier + leaving

    def _earlier(self, due: NDArray[np.int64], steps: NDArray[np.int64]) -> Leaving:
        """Return earlier held records that leave in this batch; `due` has each step's due time."""
        released = self.held.release(int(due[-1]))
        return Leaving.of(released, steps[np.searchsorted(due, released.records.times_ms)])

    def _meet(
        self,
        arrivals: Arrivals,
        table_places: NDArray[np.int64],
        leaving: Leaving,
        matches: Matches,
    ) -> None:
        """Have the table take its arrivals and answer; add leaving records with their values."""
        order = leaving.order(by_progress=self._by_progress)
        steps, records = leaving.steps[order], leaving.records.take(order)
        if self._at_once is not None:
            asked = LookUps(records.keys, records.times_ms, steps)
            answers = self._at_once.meet(arrivals, table_places, asked, all_of_them=self._asks_cold)
        else:
            answers = self._schedule.meet(arrivals, table_places, records, steps)
            matches.corrections = self._schedule.corrected()
        self._add(steps, records, answers, matches)
        joined = len(matches.records)
        if self._each_row_of is not None:
            failures = self._make_rows(self._each_row_of, matches)
            self._state.count(f"{self._name}:failed", failures)
            joined -= failures
            self._make_corrected_rows(self._each_row_of, matches)
        self._state.count(f"{self._name}:joined", joined)
        self._state.count(f"{self._name}:corrected", len(matches.corrections))

    def _add(
        self, causes: NDArray[np.int64], records: Records, answers: Answers, matches: Matches
    ) -> None:
        expired = answers.expired
        self._state.count(f"{self._name}:expired", int(np.count_nonzero(expired)))
        joined = np.ones(len(causes), np.bool_)
        if self._asks_cold:
            joined = ~expired
            matches.cold_causes, matches.cold = causes[expired], records.take(expired)
            self._state.count(f"{self._name}:cold", len(matches.cold))
        failed = {place: one for place, one in answers.failures.items() if joined[place]}
        matches.failed = [(records[place], one) for place, one in failed.items()]
        self._state.count(f"{self._name}:failed", len(failed))
        joined[list(failed)] = False
        if not self._left:
            found = joined & answers.values.is_valid().to_numpy(zero_copy_only=False)
            self._state.count(f"{self._name}:unmatched", int(np.sum(joined) - np.sum(found)))
            joined = found
        matches.causes, matches.records = causes[joined], records.take(joined)
        matches.table_values = answers.values.filter(pa.array(joined))

    def _make_rows(self, each_row_of: EachAnswer, matches: Matches) -> int:
        """Make the rows of joined records, but for those that are left out.

        Take those apart on which the function fails, and return their number.
        """
        records, table_values = matches.records, matches.table_values
        if self._rows_of is not None and len(records):
            matches.made = self._rows_of(records.keys, records.values, table_values)
            if matches.made is not None:
                _keep(matches, matches.made.is_valid())
                return 0
        given = zip(records.keys, records.values, table_values.to_pylist(), strict=True)
        rows, failures = each_row_of(given)
        matches.rows = objects(rows)
        kept = _made(records, failures, matches)
        if self._rows_of is not None:
            kept &= are_present(matches.rows)
        _keep(matches, pa.array(kept))
        return len(failures)

    def _make_corrected_rows(self, each_row_of: EachAnswer, matches: Matches) -> None:
        """Do as `_make_rows` with corrections; their records have been counted before."""
        records = [each.record for each in matches.corrections]
        values = [each.table_value for each in matches.corrections]
        given = ((one.key, one.value, value) for one, value in zip(records, values, strict=True))
        rows, failures = each_row_of(given)
        made = _made(records, failures, matches)
        matches.corrected_rows = objects(rows)[made]
        matches.corrections = [*compress(matches.corrections, made)]


def _keep(matches: Matches, kept: pa.BooleanArray) -> None:
    """Keep these joined records and their rows, and no others."""
    if kept.true_count == len(kept):
        return
    mask = kept.to_numpy(zero_copy_only=False)
    matches.causes, matches.records = matches.causes[mask], matches.records.take(mask)
    matches.table_values = matches.table_values.filter(kept)
    if matches.made is not None:
        matches.made = matches.made.filter(kept)
    if matches.rows is not None:
        matches.rows = matches.rows[mask]


def _made(
    records: Sequence[Record], failures: Mapping[int, StepFailed], matches: Matches
) -> NDArray[np.bool_]:
    """Note the records whose rows could not be made; return which could."""
    made = np.ones(len(records), np.bool_)
    made[list(failures)] = False
    matches.failed += [(records[place], one) for place, one in failures.items()]
    return made


def _refuse_unfit(table: Table, step: str, grace_ms: int | None) -> None:
    """Refuse to hold records for a table that cannot look back that far (rule D6)."""
    if not table.versioned or table.retention_ms is None:
        message = (
            f"`{step}` holds stream records, but the table `{table.name}` is not versioned and"
            " only knows its latest values; give it a history retention, or join without grace"
        )
        raise TopologyRefused(message)
    if grace_ms is not None and grace_ms > table.retention_ms:
        message = (
            f"`{step}` has a grace of {grace_ms} ms, but the table `{table.name}` remembers only"
            f" {table.retention_ms} ms; raise its history retention, or lower the grace"
        )
        raise TopologyRefused(message)
