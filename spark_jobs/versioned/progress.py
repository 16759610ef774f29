"""How far the inputs of a task are, by the rows of progress that it got.

A row of progress names the last record that belongs before it, and may arrive before that record
was read. So it waits until the partition is read up to there. An idle partition is left out until a
row says that it is awake again, or until a record of it is read. All of this is stored among the
numbers of the task's header:

    reached:TOPIC:PARTITION                the last offset that was read
    waiting:TOPIC:PARTITION:OFFSET         progress that waits for this offset to be read
    waiting-idle:TOPIC:PARTITION:OFFSET    the same row says that the partition is idle
    progress:TOPIC:PARTITION               progress that counts
    idle:TOPIC:PARTITION                   the partition is idle; its stream time
    progress:input N                       the time of an input without rows of progress
    unheard:TOPIC:PARTITION                a place that is expected has sent nothing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.spark_jobs.versioned.state import TaskState

WAITING_MAX = 64
"""The most rows of a partition that may wait. Of more some are forgotten, never the last.

The rows that stay lie evenly over the offsets, at most a thirty-second of them apart. Progress then
comes in larger steps, and no earlier. Only a reader that is far behind gets there.
"""
_EVENLY = WAITING_MAX // 2
_NOTHING_READ = -1
STORED_KINDS = ("reached", "waiting", "waiting-idle", "progress", "idle", "unheard")
"""The first words of all these names, before the colon."""
_WRITTEN_ANEW = ("waiting:", "waiting-idle:", "unheard:")
_NONE = np.iinfo(np.int64).min


def place_of(topic: str | None, partition: int) -> str:
    """Return the name of a partition."""
    return f"{topic}:{partition}"


def silent_place(number: int) -> str:
    """Return the name of an input without rows of progress."""
    return f"input {number}"


@dataclass(frozen=True)
class Expected:
    """The inputs that must say to a task how far they are, before any progress counts."""

    partitions: Mapping[int, int] = field(default_factory=dict)
    """The partitions of each input; zero for an input whose records alone say how far it is."""
    topics: Mapping[int, str] = field(default_factory=dict)
    """The topic of each input that has partitions."""
    by_partition: bool = False
    """Whether a task is a partition, and gets the progress of no other."""

    def places(self, task: int) -> set[str]:
        """Return all places that a task waits for.

        A task that is a partition waits for it, even if the topics got it later.
        """
        places = {
            place_of(self.topics[number], partition)
            for number, count in self.partitions.items()
            for partition in ([task] if self.by_partition and count else range(count))
        }
        return places | {silent_place(number) for number in self.silent()}

    def silent(self) -> list[int]:
        """Return the inputs without rows of progress."""
        return [number for number, count in self.partitions.items() if not count]


class ProgressRow(NamedTuple):
    """One row of progress of a partition."""

    progress_ms: int
    """The lowest timestamp that a later record on time can still have."""
    cleaned_offset: int | None
    """The last record that belongs before it; if None, it counts when all earlier rows do."""
    idle_ms: int | None = None
    """If the partition is idle, the highest timestamp that ever came in; else None."""


def pack_progress(rows: Sequence[ProgressRow]) -> bytes:
    """Pack rows of one partition, in the order in which they came."""
    numbers = [[_NONE if each is None else each for each in row] for row in rows]
    return np.array(numbers, "<i8").tobytes()


def unpack_progress(packed: bytes) -> list[ProgressRow]:
    """Unpack the rows of one partition."""
    numbers = np.frombuffer(packed, "<i8").reshape(-1, len(ProgressRow._fields)).tolist()
    return [
        ProgressRow(ms, *(None if each == _NONE else each for each in more))
        for ms, *more in numbers
    ]


class Waiting:
    """A bounded number of rows of one partition, by the records that they name."""

    def __init__(self) -> None:
        self._rows: dict[int, ProgressRow] = {}

    def add(self, row: ProgressRow) -> None:
        """Add a row that came behind all others."""
        offset = row.cleaned_offset
        if offset is None:
            offset = max(self._rows, default=_NOTHING_READ)
        before = self._rows.get(offset, row)
        highest_ms = max(before.progress_ms, row.progress_ms)
        self._rows[offset] = row._replace(progress_ms=highest_ms)
        if len(self._rows) > WAITING_MAX:
            self._rows = _evenly(self._rows)

    def take(self, read: int) -> list[ProgressRow]:
        """Remove and return the rows that count once all records up to an offset are read."""
        due = sorted(offset for offset in self._rows if offset <= read)
        return [self._rows.pop(offset)._replace(cleaned_offset=offset) for offset in due]

    def rows(self) -> list[ProgressRow]:
        """Return all rows in the order of the records that they name."""
        return [
            self._rows[offset]._replace(cleaned_offset=None if offset < 0 else offset)
            for offset in sorted(self._rows)
        ]

    def __bool__(self) -> bool:
        return bool(self._rows)


def _evenly(rows: Mapping[int, ProgressRow]) -> dict[int, ProgressRow]:
    """Return the last row of each stretch of offsets; the stretches are equally long."""
    stretch = 1 << ((max(rows) - min(rows)) // _EVENLY).bit_length()
    last = {offset // stretch: offset for offset in sorted(rows)}
    return {offset: rows[offset] for offset in last.values()}


class TaskProgress:
    """The progress that one task got, and how much of it counts."""

    def __init__(
        self, state: TaskState, expected: Iterable[str], begins: Mapping[str, int]
    ) -> None:
        """Go on with the state; progress counts once all expected places have sent theirs.

        A partition that a topic gets later is expected as soon as it sends anything.
        Progress of other topics is forgotten. `begins` are the first offsets of partitions: the
        records before were deleted, and no reader will see them.
        """
        self._numbers = state.numbers
        self._expected = set(expected)
        self._topics = {place.rpartition(":")[0] for place in self._expected} - {""}
        self._begins = begins
        self._waiting: dict[str, Waiting] = defaultdict(Waiting)
        self._forget_others()
        self._restore()
        for place in self._expected & begins.keys():
            self._read_up_to(place, begins[place] - 1)
        state.add(self)

    def read_up_to(self, place: str, offset: int) -> None:
        """Note that a partition was read up to an offset; progress that waited for it counts."""
        if self._is_ours(place) and offset > self._position(place):
            self._numbers.pop(f"idle:{place}", None)
            self._read_up_to(place, offset)

    def add(self, place: str, row: ProgressRow) -> None:
        """Add a row of progress: it counts when the partition is read up to the record it names.

        A row that names none counts when all earlier ones do.
        """
        if not self._is_ours(place):
            return
        waiting = self._waiting[place]
        waiting.add(row)
        self._count(place, waiting.take(self._position(place)))

    def count(self, place: str, progress_ms: int) -> None:
        """Set the progress of a place from now on; it never goes back."""
        name = f"progress:{place}"
        self._numbers[name] = max(progress_ms, self._numbers.get(name, progress_ms))

    def progress_ms(self) -> int | None:
        """Return the time that all places have passed, None while one of them is silent.

        Idle ones are left out. If all are idle, it is the end of all that was read.
        """
        places = self._places()
        said = [each for each in map(self._progress, places) if each is not None]
        if not said or len(said) < len(places):
            return None
        idle = {place: self._idle_ms(place) for place in places}
        asleep = [each for each in idle.values() if each is not None]
        if len(asleep) < len(idle):
            return min(self._numbers[f"progress:{each}"] for each in idle if idle[each] is None)
        return max(*said, *(time_ms + 1 for time_ms in asleep))

    def lowest(self) -> tuple[str, int | None] | None:
        """Return the place that the others wait for, and its progress; None if all are idle."""
        awake = [place for place in sorted(self._places()) if self._idle_ms(place) is None]
        if not awake:
            return None
        silent = [place for place in awake if self._progress(place) is None]
        place = silent[0] if silent else min(awake, key=lambda each: self._progress(each) or 0)
        return place, self._progress(place)

    def save(self) -> None:
        """Write out the rows that wait, and the places that have sent nothing."""
        numbers = self._numbers
        for name in [name for name in numbers if name.startswith(_WRITTEN_ANEW)]:
            del numbers[name]
        for place in self._places():
            if self._progress(place) is None:
                numbers[f"unheard:{place}"] = 1
        for place, waiting in self._waiting.items():
            for row in waiting.rows():
                at = f"{place}:{row.cleaned_offset}"
                numbers[f"waiting:{at}"] = row.progress_ms
                if row.idle_ms is not None:
                    numbers[f"waiting-idle:{at}"] = row.idle_ms

    def _forget_others(self) -> None:
        for name in [*self._numbers]:
            kind, _, rest = name.partition(":")
            if kind in STORED_KINDS and not self._is_ours(rest):
                del self._numbers[name]

    def _restore(self) -> None:
        for name, progress_ms in self._numbers.items():
            kind, _, rest = name.partition(":")
            if kind == "waiting":
                place, _, offset = rest.rpartition(":")
                idle_ms = self._numbers.get(f"waiting-idle:{rest}")
                self._waiting[place].add(ProgressRow(progress_ms, int(offset), idle_ms))

    def _is_ours(self, name: str) -> bool:
        """Return whether a place is expected, or is a partition of an expected topic."""
        return name in self._expected or name.partition(":")[0] in self._topics

    def _places(self) -> set[str]:
        """Return all places that are expected by now."""
        names = (name.partition(":") for name in self._numbers)
        later = {rest for kind, _, rest in names if kind == "progress"}
        return self._expected | later | {place for place, rows in self._waiting.items() if rows}

    def _position(self, place: str) -> int:
        return self._numbers.get(f"reached:{place}", _NOTHING_READ)

    def _progress(self, place: str) -> int | None:
        return self._numbers.get(f"progress:{place}")

    def _idle_ms(self, place: str) -> int | None:
        """Return the stream time of a place that is idle and has no waiting rows, else None."""
        return None if self._waiting.get(place) else self._numbers.get(f"idle:{place}")

    def _read_up_to(self, place: str, offset: int) -> None:
        if offset > self._position(place):
            self._numbers[f"reached:{place}"] = offset
            self._count(place, self._waiting[place].take(offset))

    def _count(self, place: str, rows: Iterable[ProgressRow]) -> None:
        read = self._position(place)
        deleted = self._begins.get(place, 0) - 1
        for row in rows:
            self.count(place, row.progress_ms)
            self._numbers.pop(f"idle:{place}", None)
            named = _NOTHING_READ if row.cleaned_offset is None else row.cleaned_offset
            # If more of it was read, it is awake again, though no row says so yet.
            if row.idle_ms is not None and read <= max(named, deleted):
                self._numbers[f"idle:{place}"] = row.idle_ms


def lowest_of(state: TaskState) -> tuple[str, int | None] | None:
    """Return `TaskProgress.lowest` of a checkpoint's state; None too if it waits for no place."""
    named = (name.partition(":") for name in state.numbers)
    places = {rest for kind, _, rest in named if kind in {"progress", "unheard"}}
    return TaskProgress(state, places, {}).lowest() if places else None
