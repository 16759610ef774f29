"""The stream-table join: each stream record meets the table's value at its own time.

    without grace   a record is joined when it arrives
    stream time     it is held until a record of the stream is `grace` later (KIP-923)
    progress        it is held until all inputs have passed its time, which the caller says

By stream time, output follows Kafka Streams' to the letter (rules D1 to D8). By progress, output
does not depend on how far one input was read ahead of the other: records leave before progress
moves, and the table's history expires by progress too, not by the table's own timestamps.

When a record leaves hangs on the stream alone, so a batch is planned first, in columns: the
step in which each record leaves. Then the table's records and the look-ups take their turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from contracts.errors import TopologyRefused
from contracts.record import NO_TIME_MS, Record
from spark_jobs.versioned.corrections import Correction, Corrections
from spark_jobs.versioned.grace import HeldRecords, Leaving, times_of
from spark_jobs.versioned.tables import absorb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spark_jobs.versioned.arrival import Arrival
    from spark_jobs.versioned.state import TaskState
    from spark_jobs.versioned.tables import Table

SLICES_PER_GRACE = 16
PROGRESS_SLICE_MS = 60_000
NO_PROGRESS_MS = -(1 << 63)
"""Before any progress nothing is late."""


@dataclass(slots=True)
class Matches:
    """Joined records in the order they leave, in columns."""

    causes: list[int] = field(default_factory=list)
    """Index, in the batch, of the arrival that let the record go."""
    records: list[Record] = field(default_factory=list)
    table_values: list[bytes | None] = field(default_factory=list)
    """The table's value for each; None only in a left join."""
    late: list[int] = field(default_factory=list)
    """Index, in the batch, of each record that came behind what was promised to wait for it."""
    cold_causes: list[int] = field(default_factory=list)
    """As `causes`, of the records for which a cold history is to be asked."""
    cold: list[Record] = field(default_factory=list)
    """Records older than what the table remembers of their key."""
    corrections: list[Correction] = field(default_factory=list)
    """What else was told of records that left before; each behind the row that it corrects."""


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
    ) -> None:
        """`stream` is the number of the stream's input.

        By progress, `grace_ms` only says how far back the table must be able to look. `corrects`
        keeps what has left, to tell what a later arrival of an older version changes in it.
        `asks_cold` hands on what is older than the table's history, instead of joining it with
        nothing.
        """
        self._name = name
        self._state = state
        self._table = table
        self._stream = stream
        self._left = join == "left"
        self._asks_cold = asks_cold
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
        self._corrections = Corrections(state, f"{name}:past", table) if corrects else None
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
        """Take a batch of both inputs in its order; returns what is joined, in order."""
        table_places: list[int] = []
        causes: list[int] = []
        records: list[Record] = []
        keyless: list[int] = []
        null_values = 0
        for place, (number, record) in enumerate(arrivals):
            if number != self._stream:
                table_places.append(place)
            elif record.value is None:
                null_values += 1
            elif record.key is None:
                keyless.append(place)
            else:
                causes.append(place)
                records.append(record)
        taken = len(arrivals) - len(table_places)
        late: list[int] = []
        leaving = self._leaving(causes, records, late)
        if self._left and keyless:
            at_once = [(0, arrivals[place].record) for place in keyless]
            leaving += Leaving.of(at_once, np.array(keyless, np.int64))
            keyless = []
        matches = self._in_turns(arrivals, table_places, leaving)
        matches.late = late
        self._state.count(f"{self._name}:late", len(late))
        self._state.count(f"{self._name}:taken", taken)
        self._state.count(f"{self._name}:dropped:null-value", null_values)
        self._state.count(f"{self._name}:dropped:null-key", len(keyless))
        return matches

    def advance(self, progress_ms: int, cause: int) -> Matches:
        """Let go of what progress has passed: no input will bring a lower timestamp on time."""
        matches = Matches()
        if progress_ms <= self._time_ms:
            return matches
        rows = self.held.release(progress_ms - 1)
        leaving = Leaving.of(rows, np.full(len(rows), cause, np.int64))
        records = [leaving.records[place] for place in leaving.order().tolist()]
        self._look_up([cause] * len(rows), records, matches)
        self._time_ms = self._state.numbers[self._time_name] = progress_ms
        for store in self._table.versioned_stores():
            store.time_ms = progress_ms
        return matches

    def balance(self) -> int:
        """Zero, or a stream record was lost or invented."""
        return self._state.balance(self._name, self.held.count)

    def _leaving(self, causes: list[int], records: list[Record], late: list[int]) -> Leaving:
        """The records that leave in this batch, earlier ones too; the others are held.

        The places of those that come too late to be held are added to `late`.
        """
        own_steps = np.array(causes, np.int64)
        times = times_of(records)
        waits = self._by_progress or self._grace_ms or self.held.count
        if not records or not waits:
            # With no grace, or one of zero, a record leaves in the step it enters.
            return Leaving(own_steps, times, own_steps, records)
        turns = np.arange(len(times))
        if self._by_progress:
            on_time = times >= self._time_ms
            leaves = ~on_time
            earlier = None
        else:
            reached = np.maximum(np.maximum.accumulate(times), self._time_ms)
            due = reached - (self._grace_ms or 0)
            on_time = times >= due
            # A late record's turn would be earlier than its own step.
            turns = np.maximum(turns, np.searchsorted(due, times))
            leaves = turns < len(times)
            self._time_ms = self._state.numbers[self._time_name] = int(reached[-1])
            earlier = self._earlier(due, own_steps)
        late += own_steps[~on_time].tolist()
        arrivals = self.held.arrivals + np.cumsum(on_time)
        self.held.arrivals = int(arrivals[-1])
        stay = np.flatnonzero(~leaves).tolist()
        self.held.hold([(int(arrivals[place]), records[place]) for place in stay])
        now = [records[place] for place in np.flatnonzero(leaves).tolist()]
        leaving = Leaving(own_steps[turns[leaves]], times[leaves], arrivals[leaves], now)
        return leaving if earlier is None else earlier + leaving

    def _earlier(self, due: NDArray[np.int64], steps: NDArray[np.int64]) -> Leaving:
        """What was held before this batch and leaves in it; `due` leaves at each of its steps."""
        rows = self.held.release(int(due[-1]))
        turns = np.searchsorted(due, times_of([record for _, record in rows]))
        return Leaving.of(rows, steps[turns])

    def _in_turns(
        self, arrivals: Sequence[Arrival], table_places: list[int], leaving: Leaving
    ) -> Matches:
        """Look up each record after the table's records before its step, and no later ones."""
        order = leaving.order()
        steps = leaving.steps[order]
        causes = steps.tolist()
        records = [leaving.records[place] for place in order.tolist()]
        ends = np.searchsorted(steps, table_places)
        table_times = times_of([arrivals[place].record for place in table_places])
        must = self._must_wait(table_times, times_of(records), ends).tolist()
        matches = Matches()
        start, waiting = 0, 0
        for number, end in enumerate(ends.tolist()):
            if end > start and must[number]:
                self._take(table_places[waiting:number], arrivals, matches)
                self._look_up(causes[start:end], records[start:end], matches)
                start, waiting = end, number
        self._take(table_places[waiting:], arrivals, matches)
        self._look_up(causes[start:], records[start:], matches)
        return matches

    def _must_wait(
        self, table_times: NDArray[np.int64], times: NDArray[np.int64], ends: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Which of the table's records must wait for the look-ups before them.

        The others may go first, so that many are taken at once, and then many looked up. To the
        look-ups before it a version makes no difference that is newer than all of them, if they
        ask for times that are remembered before it and behind it.
        """
        if not self._table.versioned or self._corrections is not None or not len(times):
            return np.ones(len(ends), np.bool_)
        before = np.concatenate([[NO_PROGRESS_MS], np.maximum.accumulate(times)])
        stores = self._table.versioned_stores()
        retention_ms = min(store.retention_ms for store in stores)
        horizon_ms = max(store.horizon_ms for store in stores)
        if len(table_times):
            horizon_ms = max(horizon_ms, int(table_times.max()) - retention_ms)
        forgotten = np.concatenate([[0], np.cumsum(times < horizon_ms)])[ends]
        return (table_times <= before[ends]) | (np.diff(forgotten, prepend=0) > 0)

    def _take(self, places: list[int], arrivals: Sequence[Arrival], matches: Matches) -> None:
        if self._corrections is None:
            absorb(self._table, [arrivals[place] for place in places])
            return
        for place in places:
            corrected = self._corrections.take(place, arrivals[place])
            self._state.count(f"{self._name}:corrected", len(corrected))
            matches.corrections += corrected

    def _look_up(self, causes: list[int], records: list[Record], matches: Matches) -> None:
        expired = self._table.expired(records, all_of_them=self._asks_cold)
        if expired:
            self._state.count(f"{self._name}:expired", len(expired))
            if self._asks_cold:
                causes, records = self._set_apart(expired, causes, records, matches)
        values = self._table.values_as_of(records)
        if self._corrections is not None:
            self._corrections.keep(records)
        if not self._left:
            kept = [place for place, value in enumerate(values) if value is not None]
            self._state.count(f"{self._name}:unmatched", len(values) - len(kept))
            causes = [causes[place] for place in kept]
            records = [records[place] for place in kept]
            values = [values[place] for place in kept]
        self._state.count(f"{self._name}:joined", len(records))
        matches.causes += causes
        matches.records += records
        matches.table_values += values

    def _set_apart(
        self, expired: list[int], causes: list[int], records: list[Record], matches: Matches
    ) -> tuple[list[int], list[Record]]:
        """Hand on what only a cold history can answer; what is left."""
        self._state.count(f"{self._name}:cold", len(expired))
        matches.cold_causes += [causes[place] for place in expired]
        matches.cold += [records[place] for place in expired]
        apart = set(expired)
        stays = [place for place in range(len(records)) if place not in apart]
        return [causes[place] for place in stays], [records[place] for place in stays]


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
