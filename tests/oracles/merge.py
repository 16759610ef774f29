"""The output of a merge, from the source partitions alone: the order of reading plays no part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.record import NO_TIME_MS, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Turn(NamedTuple):
    """When a record's turn is; compared by time, partition and place there."""

    time_ms: int
    partition: int
    place: int
    record: Record

    @property
    def is_late(self) -> bool:
        """Whether it came too late for its own time, in its own partition."""
        return self.time_ms > self.record.timestamp_ms


def merge(partitions: Mapping[int, Sequence[Record]], grace_ms: int) -> list[Turn]:
    """All records of all partitions, in the order of their turns."""
    turns = []
    for partition, records in partitions.items():
        time_ms = NO_TIME_MS
        for place, record in enumerate(records):
            time_ms = max(time_ms, record.timestamp_ms)
            turn_ms = max(record.timestamp_ms, time_ms - grace_ms)
            turns.append(Turn(turn_ms, partition, place, record))
    return sorted(turns, key=lambda turn: turn[:3])


def left_by(
    turns: Sequence[Turn], partitions: Mapping[int, Sequence[Record]], grace_ms: int
) -> list[Turn]:
    """Those whose turn it is once every partition was read to its end, and none is idle."""
    reached = min(
        (max([NO_TIME_MS, *(record.timestamp_ms for record in records)]), partition)
        for partition, records in partitions.items()
    )
    return [turn for turn in turns if (turn.time_ms + grace_ms, turn.partition) <= reached]
