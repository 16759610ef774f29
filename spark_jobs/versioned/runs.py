"""Versions that were replaced before look-ups ask: in runs, written once and seldom read.

A micro-batch that touches most rows of a table reads and writes the whole table, with all versions
within retention. Its look-ups ask for times near the end, so nearly all of them meet a version that
was not replaced before the first of these times. Once a table has as many others as keys, these
leave its rows for a run.

    NAME:run:3/PLACE            versions of run 3, of the keys that had this place in NAME then
    buckets:NAME:run:3:rows     how many places there were
    buckets:NAME:run:3:bytes    the bytes of all rows
    buckets:NAME:run:3:from_ms  when the first of its versions was replaced
    buckets:NAME:run:3:until_ms when the last of them was

A look-up of a time before `until_ms` reads the row of its key as well. It meets the latest version
that is not after its time. Of versions of one time that of the table holds, or else that of the run
with the highest number. A run is removed, unread, once the horizon has passed `until_ms`.

A last tombstone before the horizon answers as an unknown key does, unless a run has versions of its
key. The tombstone's time, or an earlier one, is when the last of those was replaced. So the table
keeps tombstones from the lowest `from_ms` on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark_jobs.versioned.table_rows import (
    PREFIX,
    RUN,
    TableRows,
    bytes_number,
    rows_number,
)
from headrace.spark_jobs.versioned.version_rows import (
    VersionColumns,
    decode_version_rows,
    rows_of,
    versions_of,
)
from headrace.spark_jobs.versioned.versions import BEFORE, NOTHING, Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spark_jobs.versioned.layout import History
    from headrace.spark_jobs.versioned.records import Integers
    from headrace.spark_jobs.versioned.state import TaskState

RUN_VERSIONS_MIN = 4096
"""No run has fewer versions."""
RUNS_A_DOUBLING = 8
"""Each run makes the next ones larger by one part of so many: a look-up reads a row of each."""
_FROM, _UNTIL = ":from_ms", ":until_ms"
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


class _Run(NamedTuple):
    table: TableRows
    from_ms: int
    until_ms: int


class Runs:
    """The runs of one table."""

    def __init__(self, state: TaskState, name: str) -> None:
        self._state = state
        self._name = name
        start = f"{PREFIX}{name}{RUN}"
        numbers = sorted(
            int(each.removeprefix(start).removesuffix(_UNTIL))
            for each in state.numbers
            if each.startswith(start) and each.endswith(_UNTIL)
        )
        self._runs = {number: self._run(number) for number in numbers}

    @property
    def until_ms(self) -> int:
        """The time from which no look-up needs a run."""
        return max((run.until_ms for run in self._runs.values()), default=_LONG_MIN)

    @property
    def from_ms(self) -> int:
        """The time from which the table keeps all tombstones."""
        return min((run.from_ms for run in self._runs.values()), default=_LONG_MAX)

    def least(self, keys: int) -> int:
        """Return how many versions make a run of a table with so many keys."""
        return max(keys, RUN_VERSIONS_MIN) * (RUNS_A_DOUBLING + len(self._runs)) // RUNS_A_DOUBLING

    def add(self, columns: VersionColumns, places: Integers, count: int, ends_ms: Integers) -> None:
        """Write a run of versions that were replaced at these times.

        `places` are those of the keys, which ascend, in a table of `count` rows.
        """
        number = max(self._runs, default=0) + 1
        name = self._run_name(number)
        self._state.numbers |= {
            rows_number(name): count,
            bytes_number(name): 0,
            f"{PREFIX}{name}{_FROM}": int(ends_ms.min()),
            f"{PREFIX}{name}{_UNTIL}": int(ends_ms.max()),
        }
        run = self._runs[number] = self._run(number)
        for place, row in rows_of(columns, places).items():
            run.table.put(place, row)

    def forget(self, horizon_ms: int) -> None:
        """Remove the runs that no look-up at or after the horizon needs."""
        for number, run in [*self._runs.items()]:
            if run.until_ms <= horizon_ms:
                run.table.remove_unread()
                for last in (_FROM, _UNTIL):
                    del self._state.numbers[f"{PREFIX}{self._run_name(number)}{last}"]
                del self._runs[number]

    def versions_of(self, keys: Sequence[bytes], from_ms: Integers) -> Versions:
        """Return what runs have of these keys for look-ups from these times on; keys are unlike."""
        found = [
            _versions_in(run.table, keys, np.flatnonzero(from_ms < run.until_ms))
            for _, run in sorted(self._runs.items())
        ]
        numbers, times_ms, values = zip(*found, strict=True)
        of_keys, all_times_ms = np.concatenate(numbers), np.concatenate(times_ms)
        # The order is stable, so of equal times that of the later run comes later.
        order = np.lexsort((all_times_ms, of_keys))
        starts = np.concatenate([[0], np.cumsum(np.bincount(of_keys, minlength=len(keys)))])
        return Versions(
            starts,
            all_times_ms[order],
            np.full(len(order), BEFORE),
            pa.concat_arrays(values).take(pa.array(order)),
        )

    def history_of(self, key: bytes, history: History, from_ms: int) -> History:
        """Return all versions of a key for look-ups from this time on; `history` is the table's."""
        if from_ms >= self.until_ms:
            return history
        earlier = self.versions_of([key], np.array([from_ms]))
        return histories_together((earlier.times_ms.tolist(), earlier.values.to_pylist()), history)

    def _run_name(self, number: int) -> str:
        return f"{self._name}{RUN}{number}"

    def _run(self, number: int) -> _Run:
        name, numbers = self._run_name(number), self._state.numbers
        from_ms, until_ms = (numbers[f"{PREFIX}{name}{last}"] for last in (_FROM, _UNTIL))
        return _Run(TableRows(self._state, name), from_ms, until_ms)


def histories_together(earlier: History, later: History) -> History:
    """Join the versions of a key; of equal times the later ones hold."""
    versions = dict(zip(*earlier, strict=True)) | dict(zip(*later, strict=True))
    times_ms = sorted(versions)
    return times_ms, [versions[time_ms] for time_ms in times_ms]


def _versions_in(
    table: TableRows, all_keys: Sequence[bytes], which: Integers
) -> tuple[Integers, Integers, pa.LargeBinaryArray]:
    """Return the number of a key, the time and the value of each version of some of the keys."""
    keys = [all_keys[number] for number in which.tolist()]
    places = np.unique(table.places_of(keys, len(keys))).tolist()
    rows = dict(zip(places, table.get_all(places), strict=True))
    there = {place: row for place, row in rows.items() if row is not None}
    columns, row_keys = decode_version_rows([*there.values()])
    first_keys = columns.keys.take(pa.array(np.cumsum(row_keys) - row_keys))
    table.refuse_misplaced(dict(zip(there, first_keys.to_pylist(), strict=True)))
    found = pc.index_in(columns.keys, value_set=pa.array(keys, pa.large_binary()))
    of_which = pc.fill_null(found, NOTHING).to_numpy()
    at = np.flatnonzero(of_which != NOTHING)
    taken = versions_of(columns.sizes, at)
    of_keys = np.repeat(which[of_which[at]], columns.sizes[at])
    return of_keys, columns.times_ms[taken], columns.values.take(pa.array(taken))
