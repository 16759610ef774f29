"""Turns: the order in which records of many source partitions leave a merge, as numbers.

A turn is (time, source partition). Of two records with one turn the earlier arrival leaves first.
"""

from __future__ import annotations

from bisect import bisect_left

from headrace.contracts.record import Record
from headrace.services.operators.operator import NO_CAUSE

LANE_BITS = 33
"""A turn is (time << LANE_BITS) + source partition; loops over many records say so themselves."""
_LEAST_LANE = -2
FROM_DISK = -1
"""The arrival of a record that was held before the last save."""
Arrived = tuple[int, Record, int]
"""A turn, a record, and which of all arrivals it was."""


def turn_of(time_ms: int, lane: int) -> int:
    """Return the number of a turn; numbers are in the order of (time, lane)."""
    return (time_ms << LANE_BITS) + lane


def before_turns_at(time_ms: int) -> int:
    """Return a number that no turn at a time is below, and each earlier turn is."""
    return turn_of(time_ms, _LEAST_LANE)


def time_of(turn: int) -> int:
    """Return the time of a turn."""
    return (turn - _LEAST_LANE) >> LANE_BITS


def lane_of(turn: int) -> int:
    """Return the source partition of a turn."""
    return turn - (time_of(turn) << LANE_BITS)


def causes_of(
    released: list[Arrived], gone_turn: int, moved_by: list[int], gone_at: list[int]
) -> list[int]:
    """Return, for each released record, the first cause by which its turn has come.

    By `moved_by[i]` all turns up to `gone_at[i]` have come, and before the batch those up to
    `gone_turn`. A record with such a turn has just come, or has waited for a shorter grace than
    when it came.
    """
    step, gone, cause = 0, gone_turn, NO_CAUSE
    causes: list[int] = []
    for turn, _, arrival in released:
        if turn > gone:
            step = bisect_left(gone_at, turn, step)
            gone, cause = gone_at[step], moved_by[step]
        elif arrival == FROM_DISK and cause == NO_CAUSE:
            causes.append(moved_by[0])
            continue
        causes.append(cause)
    return causes


def not_before(
    released: list[Arrived], causes: list[int], first: int, came: list[int]
) -> list[int]:
    """Return the causes of records, none of which leaves before it has come.

    `came` are the causes of the arrivals from `first` on.
    """
    return [
        cause if arrival < first or cause >= (own := came[arrival - first]) else own
        for cause, (_, _, arrival) in zip(causes, released, strict=True)
    ]
