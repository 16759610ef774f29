"""How far the inputs of a task are, as it is told.

A row of progress names the last record that belongs before it, and may be told before that record
was read. So it waits until the partition is read up to there. All of this stands among the numbers
of the task's header:

    reached:TOPIC:PARTITION            the last offset that was read
    waiting:TOPIC:PARTITION:OFFSET     progress that waits for this offset to be read
    progress:TOPIC:PARTITION           progress that counts
    progress:input N                   the time of an input of which nobody says how far it is
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.versioned.state import TaskState

WAITING_MAX = 64
"""So many rows of a partition may wait; of more every second one is forgotten, never the last.

Progress then comes in larger steps, and no earlier. It takes a reader that is far behind.
"""
_NOTHING_READ = -1


def place_of(topic: str | None, partition: int) -> str:
    """What a partition is called here."""
    return f"{topic}:{partition}"


class Heard:
    """What one task was told of progress, and what of it counts."""

    def __init__(self, state: TaskState, expected: int, begins: Mapping[str, int]) -> None:
        """Progress counts once `expected` places have told theirs.

        `begins` says with which offset a partition begins: what is before was deleted, and nobody
        will read it.
        """
        self._numbers = state.numbers
        self._expected = expected
        self._waiting: dict[str, dict[int, int]] = defaultdict(dict)
        for name, progress_ms in self._numbers.items():
            kind, _, rest = name.partition(":")
            if kind == "waiting":
                place, _, offset = rest.rpartition(":")
                self._waiting[place][int(offset)] = progress_ms
        for place, first in begins.items():
            self.read_up_to(place, first - 1)
        state.add(self)

    def read_up_to(self, place: str, offset: int) -> None:
        """All of a partition's records up to an offset were read; what waited for them counts."""
        name = f"reached:{place}"
        if offset <= self._numbers.get(name, _NOTHING_READ):
            return
        self._numbers[name] = offset
        waiting = self._waiting[place]
        for due in [each for each in waiting if each <= offset]:
            self.count(place, waiting.pop(due))

    def tell(self, place: str, progress_ms: int, cleaned_offset: int | None) -> None:
        """A row of progress: it counts when the partition is read up to the record it names.

        One that names none counts when all earlier ones do.
        """
        waiting = self._waiting[place]
        if cleaned_offset is None:
            cleaned_offset = max(waiting, default=_NOTHING_READ)
        if cleaned_offset <= self._numbers.get(f"reached:{place}", _NOTHING_READ):
            self.count(place, progress_ms)
            return
        waiting[cleaned_offset] = max(progress_ms, waiting.get(cleaned_offset, progress_ms))
        if len(waiting) > WAITING_MAX:
            kept = sorted(waiting)[::-2]
            self._waiting[place] = {each: waiting[each] for each in kept}

    def count(self, place: str, progress_ms: int) -> None:
        """Progress of a place from now on; it never goes back."""
        name = f"progress:{place}"
        self._numbers[name] = max(progress_ms, self._numbers.get(name, progress_ms))

    def progress_ms(self) -> int | None:
        """The time that all places have passed, None while one is silent."""
        heard = [n for name, n in self._numbers.items() if name.startswith("progress:")]
        return min(heard) if heard and len(heard) >= self._expected else None

    def save(self) -> None:
        """Write out which rows wait."""
        for name in [name for name in self._numbers if name.startswith("waiting:")]:
            del self._numbers[name]
        for place, waiting in self._waiting.items():
            for offset, progress_ms in waiting.items():
                self._numbers[f"waiting:{place}:{offset}"] = progress_ms
