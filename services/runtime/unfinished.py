"""Transactions that a broker calls aborted and that stand open in its partitions.

Brokers that come back from an outage can do that (seen with Apache Kafka 4.3.1): a transaction
that times out while a partition has no leader is marked aborted without a word to the partition
(its log says "these partitions are likely deleted already and hence can be skipped"). The records
stay open, and the next transaction of the same producer id would commit them with its own: all of
them twice. So a producer that has just been started, and has nothing open by its coordinator's
account, looks for such records before it writes, and ends them as Kafka's own
`kafka-transactions.sh abort` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.structs import TopicPartition

from contracts.errors import KafkaRefused
from services.runtime import seams
from services.runtime.requests import AbortInPartition, DescribeProducers


class Unfinished(NamedTuple):
    """A transaction that is open in a partition alone."""

    place: TopicPartition
    leader: int
    first_offset: int
    producer_epoch: int
    coordinator_epoch: int


async def abort_unfinished(producer: Any, topics: Iterable[str]) -> list[TopicPartition]:
    """End what stands open under this producer's id; where that was."""
    producer_id = seams.producer_id(producer)
    found = await _unfinished(producer, producer_id, topics)
    for one in found:
        await _abort(producer, producer_id, one)
    return [one.place for one in found]


async def _unfinished(producer: Any, producer_id: int, topics: Iterable[str]) -> list[Unfinished]:
    found = []
    for leader, partitions in (await _by_leader(producer, topics)).items():
        answer = await producer.client.send(leader, DescribeProducers(partitions))
        for topic, described, _ in answer.topics:
            for number, code, message, producers, _ in described:
                place = TopicPartition(topic, number)
                _check(code, message, place)
                found += [
                    Unfinished(place, leader, first_offset, epoch, coordinator)
                    for identity, epoch, _, _, coordinator, first_offset, _ in producers
                    if identity == producer_id and first_offset >= 0
                ]
    return found


async def _by_leader(producer: Any, topics: Iterable[str]) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    # Asked for one by one, each topic would cost a round trip while nobody owns the partition.
    await producer.client.set_topics(topics)
    for topic in topics:
        for number in await producer.partitions_for(topic):
            leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, number))
            if leader is None or leader < 0:
                raise LeaderNotAvailableError(topic)
            found[leader][topic].append(number)
    return found


async def _abort(producer: Any, producer_id: int, one: Unfinished) -> None:
    place = one.place
    answer = await producer.client.send(
        one.leader,
        AbortInPartition(
            place.topic, place.partition, producer_id, one.producer_epoch, one.coordinator_epoch
        ),
    )
    ((_, ((_, ((_, code, _),), _),), _),) = answer.markers
    if for_code(code) is ClusterAuthorizationFailedError:
        message = (
            f"an outage left a transaction open in {place.topic}/{place.partition} that nobody will"
            " end, and the brokers do not let us (that takes ClusterAction): have it ended with"
            f" `kafka-transactions.sh abort --topic {place.topic} --partition {place.partition}"
            f" --start-offset {one.first_offset}`, and start again"
        )
        raise KafkaRefused(message)
    if code:
        raise for_code(code)


def _check(code: int, message: str | None, place: TopicPartition) -> None:
    error = for_code(code)
    if error is TopicAuthorizationFailedError:
        sentence = (
            f"the brokers do not let us see who writes to {place.topic}, which tells whether an"
            " outage left a transaction open there; grant Read"
        )
        raise KafkaRefused(sentence)
    if code:
        raise error(message)
