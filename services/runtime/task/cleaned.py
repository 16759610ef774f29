"""The last record of a cleaned partition, which rows of progress name.

A state knows it from its own commits. A new state may stand behind records of an earlier one, as
after a reset that leaves the cleaned topic as it is. A reader that has read those takes a row that
names no record, or an earlier one, for an older row. It would wait for a partition that is idle.
"""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from headrace.contracts.record import Record, offset_of
from headrace.services.kafka.rights import may_be_read
from headrace.services.runtime.changelog.restorer import BeginsLaterError, Restorer
from headrace.services.state.partition import PartitionState

_LOOK_BACK = 10
_LOOK_BACK_FURTHER = 10


async def check_cleaned(
    restorer: Restorer, cleaned: TopicPartition, state: PartitionState, *, may_read: bool
) -> None:
    """Forget the last record if the topic ends before it, and find the one that is there.

    The record stands in another topic then: the sink was renamed, or its topic made anew. Readers
    of this one would wait for it. At least once, nobody need have given us the right to read it, so
    brokers are asked whether somebody has: a fetch that is refused would fail for all partitions.
    """
    last = state.cleaned_offset
    end = await restorer.end_of_log(cleaned)
    if last is not None and last < end:
        return
    found = None
    if end and (may_read or await may_be_read(cleaned.topic, restorer.ask)):
        found = await _last_record(restorer, cleaned, end)
    if found != last:
        state.know_cleaned(found)


async def _last_record(restorer: Restorer, partition: TopicPartition, end: int) -> int | None:
    """Return the offset of the last committed record, None where there is none."""
    found: list[int] = []

    def take(records: list[Record], _: int) -> int:
        found.append(offset_of(records[-1]))
        return 0

    # Behind the last record stand markers, and what was aborted.
    first, start, back = 0, end, _LOOK_BACK
    while start > first and not found:
        start = max(first, end - back)
        back *= _LOOK_BACK_FURTHER
        try:
            await restorer.restore(partition, start, take, is_last=False)
        except BeginsLaterError as begins:
            first, start = begins.first, end
    return found[-1] if found else None
