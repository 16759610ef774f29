"""A table that keeps each key's history, made anew from all versions there ever were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Came(NamedTuple):
    """A version as a micro-batch brings it; without a value it deletes its key."""

    key: str | None
    at: int
    task: int
    sequence: int
    value: str | None


class Kept(NamedTuple):
    """A row: the value that a key had from a time until another; without a value it never was."""

    key: str | None
    valid_from: int
    valid_to: int | None
    value: str | None


def history(batches: Iterable[Sequence[Came]], *, in_order: bool = False) -> list[Kept]:
    """Return the rows behind all micro-batches.

    Of two versions of one time the later one counts: that of a later micro-batch, or of the lower
    task, or of the higher sequence. With `in_order` no version begins before an earlier one.
    """
    kept: list[Kept] = []
    values: dict[str, dict[int, str | None]] = {}
    for batch in batches:
        kept += [Kept(None, one.at, None, one.value) for one in batch if one[0] is None and one[4]]
        by_time: dict[tuple[str, int], list[Came]] = {}
        for one in sorted(batch, key=lambda one: (one.task, one.sequence)):
            if one.key is not None:
                times = [at for key, at in by_time if key == one.key] + list(
                    values.get(one.key, ())
                )
                at = max([one.at, *times]) if in_order else one.at
                by_time.setdefault((one.key, at), []).append(one)
        for (key, at), same in by_time.items():
            lowest = [one for one in same if one.task == same[0].task]
            values.setdefault(key, {})[at] = lowest[-1].value
    return kept + [row for key, of_key in values.items() for row in _rows(key, of_key)]


def _rows(key: str, values: dict[int, str | None]) -> Iterable[Kept]:
    times = sorted(values)
    before: str | None = None
    for at, end in zip(times, [*times[1:], None], strict=True):
        value = values[at]
        if value is not None:
            yield Kept(key, at, end, value)
        elif before is None:
            yield Kept(key, at, at, None)
        before = value
