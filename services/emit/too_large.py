"""Records that a topic does not take at once, which is found where they would leave."""

from __future__ import annotations

from contracts.dead_letter import SINK
from contracts.decision import Reason
from contracts.record import Record
from services.operators.operator import Aside, Batch


def too_large(batch: Batch, record: Record, topic: str, takes_bytes: int) -> Aside:
    """One of the records that all operators let pass."""
    cause = next(
        cause for one, cause in zip(batch.records, batch.causes, strict=True) if one is record
    )
    return Aside(cause, SINK, record, Reason.TOO_LARGE, _detail(topic, takes_bytes))


def too_large_and_late(late: Aside, topic: str, takes_bytes: int) -> Aside:
    """One of the records that came too late."""
    return late._replace(reason=Reason.TOO_LARGE, detail=_detail(topic, takes_bytes))


def _detail(topic: str, takes_bytes: int) -> str:
    return f"`{topic}` takes {takes_bytes} bytes at once, and it has more"
