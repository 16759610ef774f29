"""A table of any kind takes a batch and answers look-ups by a schedule, one after the other.

A step above the table may compute a value from others and from the value that it replaces, so the
table takes each arrival by itself. Only look-ups are answered many at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.arrival import in_order
from headrace.spark_jobs.versioned.at_once import Answers
from headrace.spark_jobs.versioned.functions import StepFailed, each_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
    from headrace.spark_jobs.versioned.corrections import Correction, Corrections
    from headrace.spark_jobs.versioned.records import Records
    from headrace.spark_jobs.versioned.tables import Table

_LOWEST_MS = np.iinfo(np.int64).min


class Schedule:
    """The schedule of one table, and its corrections."""

    def __init__(self, table: Table, corrections: Corrections | None, *, asks_cold: bool) -> None:
        """With `asks_cold`, every look-up before the history expires, also one of the latest."""
        self._table = table
        self._corrections = corrections
        self._asks_cold = asks_cold
        self._corrected: list[Correction] = []
        self._failures: dict[int, StepFailed] = {}

    def meet(
        self,
        arrivals: Arrivals,
        places: NDArray[np.int64],
        records: Records,
        steps: NDArray[np.int64],
    ) -> Answers:
        """Look each record up as of its step: after all earlier arrivals, before later ones."""
        ends = np.searchsorted(steps, places)
        taken = arrivals.records.take(places)
        must = self._must_wait(taken.times_ms, records.times_ms, ends).tolist()
        waiting = [*arrivals.take(places)]
        looked, numbers = [*records], places.tolist()
        values: list[bytes | None] = []
        expired = np.zeros(len(records), np.bool_)
        self._failures = {}
        start, first = 0, 0
        for number, end in enumerate(ends.tolist()):
            if end > start and must[number]:
                self._take(numbers[first:number], waiting[first:number])
                values += self._look_up(looked, slice(start, end), expired)
                start, first = end, number
        self._take(numbers[first:], waiting[first:])
        values += self._look_up(looked, slice(start, len(looked)), expired)
        return Answers(pa.array(values, pa.large_binary()), expired, self._failures)

    def corrected(self) -> list[Correction]:
        """Return the corrections since the last call."""
        corrected, self._corrected = self._corrected, []
        return corrected

    def _must_wait(
        self, table_times: NDArray[np.int64], times: NDArray[np.int64], ends: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return which of the table's records must wait for the look-ups before them.

        The others may go first, so that many records are taken at once, and then many looked up.
        A version newer than all look-ups before it makes no difference to them, if the history
        remembers their times both before and after the version is put.
        """
        if not self._table.versioned or self._corrections is not None or not len(times):
            return np.ones(len(ends), np.bool_)
        before = np.concatenate([[_LOWEST_MS], np.maximum.accumulate(times)])
        stores = self._table.versioned_stores()
        retention_ms = min(store.retention_ms for store in stores)
        horizon_ms = max(store.horizon_ms for store in stores)
        if len(table_times):
            horizon_ms = max(horizon_ms, int(table_times.max()) - retention_ms)
        forgotten = np.concatenate([[0], np.cumsum(times < horizon_ms)])[ends]
        return (table_times <= before[ends]) | (np.diff(forgotten, prepend=0) > 0)

    def _take(self, places: list[int], arrivals: list[Arrival]) -> None:
        with in_order(zip(places, arrivals, strict=True)) as numbered:
            for place, arrival in numbered:
                if self._corrections is None:
                    self._table.take(place, arrival)
                else:
                    self._corrected += self._corrections.take(place, arrival)

    def _look_up(
        self, looked: list[Record], which: slice, all_expired: NDArray[np.bool_]
    ) -> list[bytes | None]:
        """Return the values for some records; mark those that are older than the history."""
        records, expired = looked[which], all_expired[which]
        expired[self._table.expired(records, all_of_them=self._asks_cold)] = True
        values, failures = self._values(records)
        if self._corrections is not None:
            cold = expired & self._asks_cold
            self._corrections.keep(
                [
                    record
                    for place, (record, is_cold) in enumerate(zip(records, cold, strict=True))
                    if not is_cold and place not in failures
                ]
            )
        self._failures |= {which.start + place: failed for place, failed in failures.items()}
        return values

    def _values(self, records: list[Record]) -> tuple[list[bytes | None], dict[int, StepFailed]]:
        """Return the values for these records, and the failures of those without one."""
        try:
            return self._table.values_as_of(records), {}
        except StepFailed:
            return each_answer(
                lambda record: self._table.values_as_of([record])[0],
                [(record,) for record in records],
            )
