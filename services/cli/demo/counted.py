"""Where each click went, and what was counted in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.record import Record
from headrace.contracts.topics import decisions_topic
from headrace.contracts.window import plain_key, window_of
from headrace.services.cli.demo.clicks import CLEANED, OPERATORS, START_MS, TOPIC
from headrace.services.kafka.records import read_records
from headrace.services.settings import Settings


class Decided(NamedTuple):
    """One line of the decisions topic."""

    operator: str
    verdict: Verdict
    reason: Reason
    evidence: dict[str, Any]


class Count(NamedTuple):
    """A final count, in seconds since the demo's beginning."""

    user: str
    from_s: int
    to_s: int
    clicks: int


Journeys = dict[int, dict[str, list[Decided]]]
"""By source offset and operator, what was decided about a record."""


def read_journeys(settings: Settings) -> Journeys:
    """Read from the decisions topic what each operator did with each record of the source."""
    journeys: Journeys = {}
    for record in read_records(settings, decisions_topic(CLEANED).name):
        fields = json.loads(record.value or b"")
        if fields["topic"] == TOPIC and fields["offset"] is not None:
            of_record = journeys.setdefault(fields["offset"], {})
            decided = Decided(
                fields["operator"],
                Verdict(fields["verdict"]),
                Reason(fields["reason"]),
                fields["evidence"],
            )
            of_record.setdefault(decided.operator, []).append(decided)
    return journeys


def fate(journeys: Journeys, offset: int) -> str:
    """How a record ended; `lost` if nobody speaks of it."""
    stations: list[Sequence[Decided]] = [
        journeys.get(offset, {}).get(name, []) for name in OPERATORS
    ]
    last = next((decisions[-1] for decisions in reversed(stations) if decisions), None)
    if last is None or last.verdict is Verdict.FORWARDED:
        return "lost"
    if last.verdict is Verdict.MERGED:
        return "counted"
    return "duplicate" if last.reason is Reason.DUPLICATE else str(last.verdict)


def fates(records: Sequence[Record], journeys: Journeys) -> Counter[str]:
    """How many records ended how."""
    return Counter(fate(journeys, offset) for offset in range(len(records)))


def counts(cleaned: Sequence[Record]) -> list[Count]:
    """Return the final counts in the order in which they left."""
    return [_count(record) for record in cleaned]


def _count(record: Record) -> Count:
    window = window_of(record.headers)
    if window is None or record.key is None or record.value is None:
        message = f"a count without a window left: {record}"
        raise AssertionError(message)
    start_s, end_s = ((at_ms - START_MS) // 1_000 for at_ms in (window.start_ms, window.end_ms))
    user = plain_key(record.key, window).decode()
    return Count(user, start_s, end_s, int.from_bytes(record.value, "big"))
