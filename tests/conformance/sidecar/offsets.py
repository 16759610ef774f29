"""Lets a sidecar believe the offsets that records carry in a header.

The deduplication of a vector with replays must see one offset twice, and a broker gives out each
once. So between the source and the operators, and there alone, the header's number takes the
offset's place; what is committed are the broker's own offsets.
"""

from __future__ import annotations

from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Step
from tests.conformance.sidecar.groups import OFFSET_HEADER


def believe_offsets() -> None:
    """From now on every chain of this process reads offsets from the header."""
    process = Chain.process

    def process_believing(self: Chain, batch: Batch, **how: bool) -> Step:
        batch.records = [_believed(record) for record in batch.records]
        return process(self, batch, **how)

    Chain.process = process_believing  # type: ignore[method-assign]


def _believed(record: Record) -> Record:
    told = dict(record.headers).get(OFFSET_HEADER)
    return record._replace(offset=None if told is None else int(told))
