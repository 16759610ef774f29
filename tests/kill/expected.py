"""The expected contents of each topic, by the oracles, for the records of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.contracts.hops import Hop
from headrace.contracts.record import Headers, Record
from tests.kill.stream import POISON_MS
from tests.properties.compose import expected_of_chain


class Leaving(NamedTuple):
    """A record as it must stand in a topic, and the one that made it leave."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    cause: Record


class Answer(NamedTuple):
    """The records that one partition of a hop must have written."""

    cleaned: list[Leaving]
    """To the cleaned topic, or to the next hop."""
    late: list[Leaving]
    dead: list[Leaving]


def answer_of(hop: Hop, source: Sequence[Record]) -> Answer:
    """The answer for a partition; at the door of the source, who is poison dies."""
    is_poison = [hop.is_first and record.timestamp_ms >= POISON_MS for record in source]
    taken = [record for record, dies in zip(source, is_poison, strict=True) if not dies]
    dead = [itself(record) for record, dies in zip(source, is_poison, strict=True) if dies]
    if not hop.operators:
        return Answer(list(map(itself, taken)), [], dead)
    expected = expected_of_chain(hop.operators, taken)
    assert not expected.dead, "no pipeline here gives up records behind the door"
    assert expected.failure is None, "no pipeline here may fail"
    cleaned = [Leaving(*output[1:5], taken[output.cause]) for output in expected.outputs]
    return Answer(cleaned, [itself(taken[cause]) for cause in expected.late], dead)


def itself(record: Record) -> Leaving:
    """A record that leaves as it came."""
    return Leaving(*record[:4], record)
