"""Late records, dead records and decisions as they stand in their topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from headrace.contracts.dead_letter import DeadLetter, dead_headers
from headrace.contracts.decision import Decision
from headrace.contracts.record import Record
from headrace.services.operators.operator import Aside


def late_records(asides: Iterable[Aside]) -> Iterator[Record]:
    """Late records, as they came."""
    for aside in asides:
        yield aside.record


def dead_records(asides: Iterable[Aside], sources: list[Record]) -> Iterator[Record]:
    """Dead records as they came, with the cause behind their headers.

    What an operator gave up may be a record that another operator made; where it caused one of the
    records in `sources` itself, the letter says where that stood.
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
    """What became of each record, as JSON under the record's key."""
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
