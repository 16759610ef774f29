"""How far the inputs of a task are, as it is told.

A row of progress names the last record that belongs before it, and may be told before that record
was read. So it waits until the partition is read up to there. A partition that is idle is left out
until it speaks again, or until a record of it is read. All of this stands among the numbers of the
task's header:

    reached:TOPIC:PARTITION                the last offset that was read
    waiting:TOPIC:PARTITION:OFFSET         progress that waits for this offset to be read
    waiting-idle:TOPIC:PARTITION:OFFSET    the same row says that the partition is idle; see `Told`
    progress:TOPIC:PARTITION               progress that counts
    idle:TOPIC:PARTITION                   the partition is idle; its stream time
    progress:input N                       the time of an input of which nobody says how far it is
    unheard:TOPIC:PARTITION                nothing was told of a place that is expected
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
"""So many rows of a partition may wait; of more some are forgotten, never the last.

Those that stay lie evenly over the offsets, at most a thirty-second of them apart. Progress then
comes in larger steps, and no earlier. It takes a reader that is far behind.
"""
_EVENLY = WAITING_MAX // 2
_NOTHING_READ = -1
HEARD = ("reached", "waiting", "waiting-idle", "progress", "idle", "unheard")
"""How all of these begin, before their first colon."""
_WRITTEN_ANEW = ("waiting:", "waiting-idle:", "unheard:")
_NONE = np.iinfo(np.int64).min


def place_of(topic: str | None, partition: int) -> str:
    """What a partition is called here."""
    return f"{topic}:{partition}"


def silent_place(number: int) -> str:
    """What an input is called of which nobody says how far it is."""
    return f"input {number}"


@dataclass(frozen=True)
class Expected:
    """Of whom tasks hear how far they are, before anything counts."""

    partitions: Mapping[int, int] = field(default_factory=dict)
    """How many each input has; zero where nobody says how far it is, and its records do."""
    topics: Mapping[int, str] = field(default_factory=dict)
    """The topic of each input that has partitions."""
    by_partition: bool = False
    """Whether a task is a partition, and hears of no other."""

    def places(self, task: int) -> set[str]:
        """All that one task waits for."""
        told = {
            place_of(self.topics[number], partition)
            for number, count in self.partitions.items()
            for partition in range(count)
            if not self.by_partition or partition == task
        }
        return told | {silent_place(number) for number in self.silent()}

    def silent(self) -> list[int]:
        """The inputs of which nobody says how far they are."""
        return [number for number, count in self.partitions.items() if not count]


class Told(NamedTuple):
    """What one row of progress says of a partition."""

    progress_ms: int
    """The lowest timestamp that a later record on time can still have."""
    cleaned_offset: int | None
    """The last record that belongs before it; None counts when all that was told before does."""
    idle_ms: int | None = None
    """Where the partition is idle, the highest timestamp that ever came in; else None."""


def pack_told(rows: Sequence[Told]) -> bytes:
    """Rows of one partition as bytes, in the order in which they were told."""
    numbers = [[_NONE if each is None else each for each in row] for row in rows]
    return np.array(numbers, "<i8").tobytes()


def unpack_told(packed: bytes) -> list[Told]:
    """The rows again."""
    numbers = np.frombuffer(packed, "<i8").reshape(-1, len(Told._fields)).tolist()
    return [Told(ms, *(None if each == _NONE else each for each in more)) for ms, *more in numbers]


class Waiting:
    """Rows of one partition by the records that they name, evenly few."""

    def __init__(self) -> None:
        self._rows: dict[int, Told] = {}

    def add(self, told: Told) -> None:
        """Add a row that was told behind all others."""
        offset = told.cleaned_offset
        if offset is None:
            offset = max(self._rows, default=_NOTHING_READ)
        before = self._rows.get(offset, told)
        highest_ms = max(before.progress_ms, told.progress_ms)
        self._rows[offset] = told._replace(progress_ms=highest_ms)
        if len(self._rows) > WAITING_MAX:
            self._rows = _evenly(self._rows)

    def take(self, read: int) -> list[Told]:
        """The rows that count once all up to an offset is read; they wait no longer."""
        due = sorted(offset for offset in self._rows if offset <= read)
        return [self._rows.pop(offset)._replace(cleaned_offset=offset) for offset in due]

    def rows(self) -> list[Told]:
        """All rows in the order of the records that they name."""
        return [
            self._rows[offset]._replace(cleaned_offset=None if offset < 0 else offset)
            for offset in sorted(self._rows)
        ]

    def __bool__(self) -> bool:
        return bool(self._rows)


def _evenly(rows: Mapping[int, Told]) -> dict[int, Told]:
    """The last row of each stretch of offsets; the stretches are equally long."""
    stretch = 1 << ((max(rows) - min(rows)) // _EVENLY).bit_length()
    last = {offset // stretch: offset for offset in sorted(rows)}
    return {offset: rows[offset] for offset in last.values()}


class Heard:
    """What one task was told of progress, and what of it counts."""

    def __init__(
        self, state: TaskState, expected: Iterable[str], begins: Mapping[str, int]
    ) -> None:
        """Progress counts once the expected places have told theirs.

        Partitions that their topics get later are expected as soon as anything is heard of them;
        what was heard of other topics is forgotten. `begins` says with which offset a partition
        begins: what is before was deleted, and nobody will read it.
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
        """All of a partition's records up to an offset were read; what waited for them counts."""
        if self._is_ours(place) and offset > self._reached(place):
            self._numbers.pop(f"idle:{place}", None)
            self._read_up_to(place, offset)

    def tell(self, place: str, told: Told) -> None:
        """A row of progress: it counts when the partition is read up to the record it names.

        One that names none counts when all earlier ones do.
        """
        if not self._is_ours(place):
            return
        waiting = self._waiting[place]
        waiting.add(told)
        self._count(place, waiting.take(self._reached(place)))

    def count(self, place: str, progress_ms: int) -> None:
        """Progress of a place from now on; it never goes back."""
        name = f"progress:{place}"
        self._numbers[name] = max(progress_ms, self._numbers.get(name, progress_ms))

    def progress_ms(self) -> int | None:
        """The time that all places have passed, None while one is silent.

        Idle ones are left out. Where all are, that is the end of all that was read.
        """
        places = self._places()
        told = [each for each in map(self._progress, places) if each is not None]
        if not told or len(told) < len(places):
            return None
        idle = {place: self._idle_ms(place) for place in places}
        asleep = [each for each in idle.values() if each is not None]
        if len(asleep) < len(idle):
            return min(self._numbers[f"progress:{each}"] for each in idle if idle[each] is None)
        return max(*told, *(time_ms + 1 for time_ms in asleep))

    def lowest(self) -> tuple[str, int | None] | None:
        """Whom the others wait for, and his progress; None where all are idle."""
        awake = [place for place in sorted(self._places()) if self._idle_ms(place) is None]
        if not awake:
            return None
        silent = [place for place in awake if self._progress(place) is None]
        place = silent[0] if silent else min(awake, key=lambda each: self._progress(each) or 0)
        return place, self._progress(place)

    def save(self) -> None:
        """Write out which rows wait, and of whom nothing was heard."""
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
            if kind in HEARD and not self._is_ours(rest):
                del self._numbers[name]

    def _restore(self) -> None:
        for name, progress_ms in self._numbers.items():
            kind, _, rest = name.partition(":")
            if kind == "waiting":
                place, _, offset = rest.rpartition(":")
                idle_ms = self._numbers.get(f"waiting-idle:{rest}")
                self._waiting[place].add(Told(progress_ms, int(offset), idle_ms))

    def _is_ours(self, name: str) -> bool:
        """Whether a place is expected, or is a partition of a topic of which some are."""
        return name in self._expected or name.partition(":")[0] in self._topics

    def _places(self) -> set[str]:
        """All places that are expected by now."""
        heard = (name.partition(":") for name in self._numbers)
        later = {rest for kind, _, rest in heard if kind == "progress"}
        return self._expected | later | {place for place, rows in self._waiting.items() if rows}

    def _reached(self, place: str) -> int:
        return self._numbers.get(f"reached:{place}", _NOTHING_READ)

    def _progress(self, place: str) -> int | None:
        return self._numbers.get(f"progress:{place}")

    def _idle_ms(self, place: str) -> int | None:
        """The stream time of a place that is idle, and of which nothing more is known to come."""
        return None if self._waiting.get(place) else self._numbers.get(f"idle:{place}")

    def _read_up_to(self, place: str, offset: int) -> None:
        if offset > self._reached(place):
            self._numbers[f"reached:{place}"] = offset
            self._count(place, self._waiting[place].take(offset))

    def _count(self, place: str, rows: Iterable[Told]) -> None:
        read = self._reached(place)
        deleted = self._begins.get(place, 0) - 1
        for row in rows:
            self.count(place, row.progress_ms)
            self._numbers.pop(f"idle:{place}", None)
            named = _NOTHING_READ if row.cleaned_offset is None else row.cleaned_offset
            # Whoever has read further knows that it speaks again, though no row has said so yet.
            if row.idle_ms is not None and read <= max(named, deleted):
                self._numbers[f"idle:{place}"] = row.idle_ms


def lowest_of(state: TaskState) -> tuple[str, int | None] | None:
    """As `Heard.lowest`, of what a checkpoint has; None, too, where a task hears of nobody."""
    named = (name.partition(":") for name in state.numbers)
    places = {rest for kind, _, rest in named if kind in {"progress", "unheard"}}
    return Heard(state, places, {}).lowest() if places else None
