"""Whether promises were kept: behind a row of progress, no record on time is earlier than it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    ReorderPolicy,
    SuppressPolicy,
)
from headrace.contracts.progress import read_progress
from headrace.contracts.record import Record, offset_of
from tests.kill.expected import Leaving

_SHOWN = 3


def promises(policies: Sequence[AnyOperator]) -> bool:
    """Whether progress is a promise here.

    Where nobody waits for order, an earlier record comes against none. And a late record that is
    forwarded into a suppress may be held there, and leave because of one that is on time.
    """
    first = policies[0]
    if isinstance(first, ReorderPolicy):
        suppresses = any(isinstance(one, SuppressPolicy) for one in policies)
        return not (suppresses and first.late == "forward")
    return isinstance(first, AggregatePolicy)


def progress_problems(
    rows: Sequence[Record],
    cleaned: Sequence[Record],
    leaving: Sequence[Leaving],
    late: Collection[int],
    longer_from: Sequence[int] = (),
) -> Iterator[str]:
    """Problems in one partition of a pipeline that promises something.

    `late` are the source offsets of records that came late. From the offsets of `longer_from` on
    some operator waits longer, and nobody promised that before. At such an offset both have rows,
    and nobody can tell them apart.
    """
    causes = {one[:4]: offset_of(one.cause) for one in leaving}
    on_time = [one for one in cleaned if causes.get(one[:4]) not in late]
    told = life = 0
    latest_ms: int | None = None
    for row in rows:
        progress = read_progress(row.key, row.value)
        if progress is None or progress.is_idle or progress.source_offset in longer_from:
            continue
        if bisect_left(longer_from, progress.source_offset) != life:
            life, latest_ms = bisect_left(longer_from, progress.source_offset), None
        where = f"{row.topic}/{row.partition}@{row.offset}"
        if latest_ms is not None and progress.progress_ms < latest_ms:
            yield f"{where}: progress went back from {latest_ms} to {progress.progress_ms}"
        latest_ms = progress.progress_ms
        reached = -1 if progress.cleaned_offset is None else progress.cleaned_offset
        for one in on_time:
            if bisect_right(longer_from, causes.get(one[:4], 0)) > life:
                continue
            if offset_of(one) > reached and one.timestamp_ms < progress.progress_ms:
                told += 1
                if told <= _SHOWN:
                    yield (
                        f"{where} promised {progress.progress_ms} behind {reached}, and"
                        f" {offset_of(one)} has {one.timestamp_ms}"
                    )
                break
