"""Make the records of the late, dead-letter and decisions topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from headrace.contracts.dead_letter import DeadLetter, dead_headers
from headrace.contracts.decision import Decision
from headrace.contracts.record import Record
from headrace.services.operators.operator import Aside


def late_records(asides: Iterable[Aside]) -> Iterator[Record]:
    """Yield late records, as they came."""
    for aside in asides:
        yield aside.record


def dead_records(asides: Iterable[Aside], sources: list[Record]) -> Iterator[Record]:
    """Yield dead records as they came, with the cause behind their headers.

    A dead record may be one that another operator made, and then has no offset. The letter names
    the offset of the record in `sources` that caused it.
    """
    for aside in asides:
        record = aside.record
        if record.offset is None and 0 <= aside.cause < len(sources):
            record = record._replace(offset=sources[aside.cause].offset)
        letter = DeadLetter(
            record, aside.operator, aside.reason, aside.detail, aside.exception, aside.stacktrace
        )
        yield aside.record._replace(headers=dead_headers(letter))


def decision_records(decisions: Iterable[Decision]) -> Iterator[Record]:
    """Yield each decision as JSON under the record's key."""
    for decision in decisions:
        record = decision.record
        fields = {
            "operator": decision.operator,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "evidence": dict(decision.evidence),
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
        }
        value = json.dumps(fields, separators=(",", ":")).encode()
        yield record._replace(value=value, headers=())
