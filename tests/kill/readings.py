"""Everything that a run left behind, read once, so that judging needs no broker."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from headrace.contracts.origin import read_origin, read_run, read_times
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from tests.kafka.clients import Clients
from tests.kill.kept import kept_records


@dataclass(frozen=True)
class Topic:
    """The records that can be read from a topic."""

    committed: dict[int, list[Record]]
    """By partition, in order."""
    uncommitted: int
    """How many records those count who read everything."""

    @property
    def count(self) -> int:
        """How many committed records."""
        return sum(map(len, self.committed.values()))


@dataclass(frozen=True)
class Readings:
    """All topics of a pipeline."""

    topics: dict[str, Topic]
    others: list[str]
    """Topics that are none of the pipeline's."""

    def records(self, topic: str, partition: int) -> list[Record]:
        """The committed records of a partition, without what is said of time between two hops."""
        return [
            record._replace(headers=record.headers[:-1]) if read_origin(record.headers) else record
            for record in self.as_sent(topic, partition)
            if read_times(record) is None and read_run(record) is None
        ]

    def as_sent(self, topic: str, partition: int) -> list[Record]:
        """All that stands in a partition and counts."""
        found = self.topics.get(topic)
        return [] if found is None else found.committed.get(partition, [])


def read_everything(clients: Clients, spec: PipelineSpec, data: Path) -> Readings:
    """Read all topics; what lies between two hops from the broker's own files in `data`."""
    names = {spec.source.topic, *(topic.name for topic in spec.topics())}
    there = clients.topics()
    topics = {name: read_topic(clients, name) for name in sorted(names & there)}
    for hop in spec.hops():
        if hop.end is not None:
            name = hop.end.topic.name
            partitions = range(len(clients.end_offsets(name)))
            committed = {number: kept_records(data, name, number) for number in partitions}
            topics[name] = Topic(committed, sum(map(len, committed.values())))
    return Readings(topics, sorted(there - names))


def read_topic(clients: Clients, name: str) -> Topic:
    """Read one topic, both ways."""
    committed: dict[int, list[Record]] = defaultdict(list)
    for record in clients.consume_all(name):
        committed[record.partition].append(record)
    return Topic(dict(committed), len(clients.consume_all(name, read_committed=False)))
