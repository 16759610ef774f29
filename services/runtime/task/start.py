"""The offset at which a task begins to read, if state, group and source do not agree."""

from __future__ import annotations

from typing import NamedTuple

from headrace.contracts.errors import StateTruncated
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.input.binding import Bounds

logger = logger_of(__name__)


class Start(NamedTuple):
    """Where a task begins to read."""

    position: int
    silent_until: int
    """Before this offset all was emitted once, and only the state is to be made."""


def start_at(source: str, reached: int | None, bounds: Bounds, *, exactly_once: bool) -> Start:
    """Return where to begin: behind what the state has reached, or what the group was told to skip.

    A position of zero is one, too: records that the source lost behind it are said to be lost.
    """
    earliest, end, committed, is_ours = bounds
    # Both are of one transaction; at least once, the changelog may say something older last.
    if exactly_once and is_ours and (committed or 0) > (reached or 0):
        return _behind(source, reached or 0, bounds)
    known = [offset for offset in (reached, committed) if offset is not None]
    position = max(known, default=earliest)
    if position > end:
        raise _source_made_anew(source, position, end)
    if reached is not None and position > reached:
        logger.warning("the group's offset is ahead of the state, and is followed", source=source)
    if position < earliest:
        logger.error(
            "records were deleted before they were read; raise the source's retention",
            source=source,
            lost_offsets=earliest - position,
        )
        position = earliest
    return Start(position, 0)


def _behind(source: str, reached: int, bounds: Bounds) -> Start:
    """Return where to begin if the changelog has lost rows up to the group's offset.

    A transaction was torn, or brokers lost the changelog's end. The task takes the same records
    again, without output, if the source still has them.
    """
    earliest, end, committed, _ = bounds
    assert committed is not None
    if committed > end:
        raise _source_made_anew(source, committed, end)
    if reached < earliest:
        message = (
            f"this pipeline has reached offset {committed} of {source}, its changelog ends with"
            f" {reached}, and the source begins at {earliest} by now: the state between cannot be"
            " made again; bring the records back, or begin anew with `headrace reset`"
        )
        raise StateTruncated(message)
    logger.warning(
        "the changelog ends before the group's offset; state is made again, and nothing is emitted",
        source=source,
        from_offset=reached,
        to_offset=committed,
    )
    return Start(reached, committed)


def _source_made_anew(source: str, reached: int, end: int) -> StateTruncated:
    """Return the refusal of a source that ends before the state does."""
    return StateTruncated(
        f"{source} ends at offset {end}, and the state has reached {reached}: the topic was made"
        " anew; begin anew with `headrace reset`, or bring the topic back"
    )
