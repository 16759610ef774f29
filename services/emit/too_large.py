"""Set aside records that are larger than their topic accepts, which shows only at the end."""

from __future__ import annotations

from headrace.contracts.dead_letter import SINK
from headrace.contracts.decision import Reason
from headrace.services.operators.operator import Aside, Batch


def too_large(batch: Batch, place: int, topic: str, takes_bytes: int) -> Aside:
    """Set aside one of the records that all operators forwarded."""
    detail = _detail(topic, takes_bytes)
    return Aside(batch.causes[place], SINK, batch.records[place], Reason.TOO_LARGE, detail)


def too_large_and_late(late: Aside, topic: str, takes_bytes: int) -> Aside:
    """Set aside one of the records that came too late."""
    return late._replace(reason=Reason.TOO_LARGE, detail=_detail(topic, takes_bytes))


def _detail(topic: str, takes_bytes: int) -> str:
    return f"`{topic}` takes {takes_bytes} bytes at once, and it has more"
