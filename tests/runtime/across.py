"""An oracle of pipelines with a repartition, by their source partitions alone; and such pipelines.

The order of reading plays no part. The oracles of the operators look at whole partitions, hop by
hop, and records that meet at a place are sorted by their turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from aiokafka.partitioner import murmur2

from headrace.contracts.dead_letter import INTAKE, DeadLetter
from headrace.contracts.hops import Hop, makes_order
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AggregatePolicy, ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.selectors import select
from headrace.services.operators.waits import waits_ms
from tests.properties.compose import expected_of_chain
from tests.runtime.expected import by_partition
from tests.runtime.sidecar import Content, contents

FAR_FUTURE_MS = 253_000_000_000_000
"""No record that late is let in."""
TORN = b'{"n":'
READER = "reader"
Numbered = tuple[int, Record]


class Sent(NamedTuple):
    """A record on its way to a place, compared by when it was sent."""

    time_ms: int
    """How far its partition was."""
    partition: int
    number: int
    record: Record


Asides = dict[tuple[int, str], list[Content]]
"""By partition and operator, in order."""


class Across(NamedTuple):
    """All records that leave, in order."""

    cleaned: dict[int, list[Content]]
    """By place."""
    late: dict[int, list[Content]]
    dead: Asides


class Place(NamedTuple):
    """The records that leave a place behind the repartition, in order."""

    cleaned: list[Content]
    late: list[Content]
    dead: dict[str, list[Record]]


def expected_across(spec: PipelineSpec, partitions: Mapping[int, Sequence[Record]]) -> Across:
    """Every source partition was read to its end, and none is idle."""
    first, second = spec.hops()
    dead: dict[tuple[int, str], list[Record]] = {}
    sent: dict[int, list[Sent]] = {}
    reached: list[tuple[int, int]] = []
    for number, of_partition in partitions.items():
        records = [one for one in of_partition if one.timestamp_ms < FAR_FUTURE_MS]
        dead[number, INTAKE] = [one for one in of_partition if one not in records]
        dead[number, READER], left = _read(first, list(enumerate(records)))
        sent[number] = _sent(first, number, records, left)
        reached.append((_latest_ms(records) - waits_ms(first.operators), number))
    assert first.end is not None
    id_of = select(first.end.id)
    came: dict[int, list[Sent]] = {number: [] for number in partitions}
    for one in (one for of_partition in sent.values() for one in of_partition):
        identity = id_of(one.record)
        to = one.partition if identity is None else murmur2(identity) & 0x7FFFFFFF
        came[to % len(came)].append(one)
    places = {number: _left(second, of_place, min(reached)) for number, of_place in came.items()}
    for number, place in places.items():
        for operator, letters in place.dead.items():
            dead[number, operator] = [*dead.get((number, operator), ()), *letters]
    return Across(
        {number: _placed(place.cleaned, number) for number, place in places.items()},
        {number: _placed(place.late, number) for number, place in places.items()},
        {
            (number, operator): _placed(map(_content_of, letters), number)
            for (number, operator), letters in dead.items()
        },
    )


Key = TypeVar("Key")


def with_any(of_each: Mapping[Key, list[Content]]) -> dict[Key, list[Content]]:
    """Return the places at which there is anything."""
    return {at: some for at, some in of_each.items() if some}


def by_place(records: Iterable[Record]) -> dict[int, list[Content]]:
    """Return the contents of records by their partition, in order."""
    return {at: contents(some) for at, some in by_partition(records).items()}


def _placed(found: Iterable[Content], number: int) -> list[Content]:
    return [(*one[:4], number) for one in found]


def _content_of(record: Record) -> Content:
    return (record.key, record.value, record.timestamp_ms, record.headers, record.partition)


def _read(hop: Hop, records: list[Numbered]) -> tuple[list[Record], list[Numbered]]:
    """Return what is dead at the operator that reads values, and the others."""
    if not any(policy.name == READER for policy in hop.operators):
        return [], records
    dead = [record for _, record in records if record.value == TORN]
    return dead, [one for one in records if one[1].value != TORN]


def _sent(hop: Hop, number: int, records: Sequence[Record], left: Sequence[Numbered]) -> list[Sent]:
    """Return the records that leave a source partition, in order."""
    times_ms = []
    time_ms = NO_TIME_MS
    for record in records:
        time_ms = max(time_ms, record.timestamp_ms)
        times_ms.append(max(NO_TIME_MS, time_ms - waits_ms(hop.operators)))
    behind = [policy for policy in hop.operators if policy.name != READER]
    if behind:
        outputs = expected_of_chain(behind, [record for _, record in left]).outputs
        left = [(left[out.cause][0], Record(*out[1:5], "", number, None)) for out in outputs]
    if not waits_ms(hop.operators):
        return [Sent(times_ms[cause], number, at, one) for at, (cause, one) in enumerate(left)]
    # A record that waited is late only if its partition was past it before it could leave.
    befores_ms = [NO_TIME_MS, *times_ms]
    return [
        Sent(max(befores_ms[cause], min(times_ms[cause], record.timestamp_ms)), number, at, record)
        for at, (cause, record) in enumerate(left)
    ]


def _latest_ms(records: Sequence[Record]) -> int:
    return max((record.timestamp_ms for record in records), default=NO_TIME_MS)


def _left(hop: Hop, came: list[Sent], reached: tuple[int, int]) -> Place:
    """The records of one place in their turn, and what the operators behind make of them."""
    at = next(at for at, policy in enumerate(hop.operators) if makes_order(policy))
    order, behind = hop.operators[at], hop.operators[at + 1 :]
    grace_ms = order.grace_ms if isinstance(order, ReorderPolicy) else 0
    turns = sorted((max(one.record.timestamp_ms, one.time_ms - grace_ms), *one[1:]) for one in came)
    ordered: list[Record] = []
    late: list[Content] = []
    for turn_ms, partition, _, record in turns:
        if (turn_ms + grace_ms, partition) > reached:
            continue
        if turn_ms > record.timestamp_ms and getattr(order, "late", "forward") == "topic":
            late.append(_content_of(record))
        else:
            ordered.append(record)
    dead, numbered = _read(hop, list(enumerate(ordered)))
    cleaned = [record for _, record in numbered]
    if any(isinstance(policy, AggregatePolicy) for policy in behind):
        # The oracles' own functions read numbers, and not fields of JSON.
        cleaned = [one._replace(value=b"%d" % _number_in(one)) for one in cleaned]
    else:
        behind = tuple(policy for policy in behind if policy.name != READER)
    letters = {READER: dead}
    if not behind:
        return Place([_content_of(one) for one in cleaned], late, letters)
    outputs = expected_of_chain(behind, cleaned).outputs
    return Place([(*out[1:5], 0) for out in outputs], late, letters)


def _number_in(record: Record) -> int:
    return int(json.loads(record.value or b"")["n"])


def asides_of(letters: Iterable[tuple[int, DeadLetter]]) -> Asides:
    """Dead letters, each with its partition of the topic, as `Across` has them."""
    found: Asides = {}
    for partition, letter in letters:
        content = (*_content_of(letter.record)[:4], partition)
        found.setdefault((partition, letter.operator), []).append(content)
    return found


def some_partitions(
    luck: Random, partitions: int, count: int, *, twins: bool, start_ms: int = 0
) -> list[Record]:
    """Records in disorder, late ones, silences, those that nobody can read, and such of year 9999.

    They stand as they came. For our pipelines a record is late if its partition is 30 s further.
    """
    times_ms = dict.fromkeys(range(partitions), start_ms)
    made: list[Record] = []
    for number in range(count):
        partition = luck.randrange(partitions)
        # A partition is silent for longer than anything waits, and the others go on.
        times_ms[partition] += luck.choice((0, 500, 2_000, 2_000, 10_000, 10_000, 400_000))
        behind_ms = luck.choice((0, 0, 0, 1_000, 15_000, 30_000, 30_001, 80_000, 200_000))
        at_ms = max(start_ms, times_ms[partition] - behind_ms)
        if number > 0 and luck.random() < 1 / 25:
            at_ms = FAR_FUTURE_MS + number
        value = TORN if luck.random() < 1 / 10 else b'{"n":%d}' % number
        identity = b"%d" % (luck.randrange(number + 1) if twins else number)
        key = luck.choice((None, b"a", b"b", b"c"))
        made.append(Record(key, value, at_ms, (("id", identity),), "raw", partition, None))
    return made


ID = "deduplicate: {by: id, id: header.id, interval: 10m}"
WINDOW = "{kind: tumbling, size: 1m, grace: 1m}"
ACROSS = {
    "a reorder behind": (
        ID,
        "reorder: {grace: 30s, late: topic}",
        f'filter: {{where: "value.n >= 0", name: {READER}}}',
    ),
    "a reorder before": (
        f'filter: {{where: "value.n >= 0", name: {READER}}}',
        "reorder: {grace: 30s}",
        ID,
    ),
    "windows behind": (
        ID,
        f"aggregate: {{function: sum, of: value.n, window: {WINDOW}, name: {READER}}}",
        "suppress: {until: window-closes}",
    ),
    "sums behind a reorder": (
        ID,
        "reorder: {grace: 30s, late: topic}",
        f"aggregate: {{function: sum, of: value.n, window: {WINDOW}, name: {READER}}}",
    ),
}
"""Pipelines whose one operator that reads values stands behind an order, or in the first hop."""
SOURCE = "idle: never, max-future: 365d"
WITH_TWINS = "a reorder before"
"""Behind an order the first by time wins; without one it is whichever twin was read first."""
