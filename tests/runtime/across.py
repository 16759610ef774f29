"""What a pipeline with a repartition makes of its source partitions, naively.

Whoever read what when plays no part: hop by hop and partition by partition, the oracles of the
operators are led over whole partitions, and what meets at a place is sorted by its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokafka.partitioner import murmur2

from headrace.contracts.hops import Hop, makes_order
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.selectors import select
from headrace.services.operators.waits import waits_ms
from tests.properties.compose import expected_of_chain
from tests.runtime.sidecar import Content


class Sent(NamedTuple):
    """A record on its way to a place, compared by when it was sent."""

    time_ms: int
    """How far its partition was."""
    partition: int
    number: int
    record: Record


class Place(NamedTuple):
    """What leaves a place behind the repartition, in order."""

    cleaned: list[Content]
    late: list[Content]


def expected_across(
    spec: PipelineSpec, partitions: Mapping[int, Sequence[Record]]
) -> dict[int, Place]:
    """By partition of the cleaned topic; every source partition was read to its end, none idle."""
    first, second = spec.hops()
    sent = {number: _sent(first, number, records) for number, records in partitions.items()}
    reached = min(
        (_latest_ms(records) - waits_ms(first.operators), number)
        for number, records in partitions.items()
    )
    assert first.end is not None
    id_of = select(first.end.id)
    places: dict[int, list[Sent]] = {number: [] for number in partitions}
    for of_partition in sent.values():
        for one in of_partition:
            identity = id_of(one.record)
            to = one.partition if identity is None else murmur2(identity) & 0x7FFFFFFF
            places[to % len(places)].append(one)
    return {number: _left(second, number, came, reached) for number, came in places.items()}


def _sent(hop: Hop, number: int, records: Sequence[Record]) -> list[Sent]:
    """What leaves a source partition, in order."""
    times_ms = []
    time_ms = NO_TIME_MS
    for record in records:
        time_ms = max(time_ms, record.timestamp_ms)
        times_ms.append(max(NO_TIME_MS, time_ms - waits_ms(hop.operators)))
    left = list(enumerate(records))
    if hop.operators:
        left = [
            (out.cause, Record(*out[1:5], "", number, None))
            for out in expected_of_chain(hop.operators, records).outputs
        ]
    return [Sent(times_ms[cause], number, at, record) for at, (cause, record) in enumerate(left)]


def _latest_ms(records: Sequence[Record]) -> int:
    return max((record.timestamp_ms for record in records), default=NO_TIME_MS)


def _left(hop: Hop, number: int, came: list[Sent], reached: tuple[int, int]) -> Place:
    """The records of one place in their turn, and what the operators behind make of them."""
    at = next(at for at, policy in enumerate(hop.operators) if makes_order(policy))
    order, behind = hop.operators[at], hop.operators[at + 1 :]
    grace_ms = order.grace_ms if isinstance(order, ReorderPolicy) else 0
    turns = sorted((max(one.record.timestamp_ms, one.time_ms - grace_ms), *one[1:]) for one in came)
    cleaned: list[Record] = []
    late: list[Content] = []
    for turn_ms, partition, _, record in turns:
        if (turn_ms + grace_ms, partition) > reached:
            continue
        if turn_ms > record.timestamp_ms and getattr(order, "late", "forward") == "topic":
            late.append((record.key, record.value, record.timestamp_ms, record.headers, number))
        else:
            cleaned.append(record)
    if not behind:
        return Place([(*one[:4], number) for one in cleaned], late)
    outputs = expected_of_chain(behind, cleaned).outputs
    return Place(
        [(out.key, out.value, out.timestamp_ms, out.headers, number) for out in outputs], late
    )
