"""Read topics by Spark's own Kafka client, and ask brokers about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark_jobs.seams import java_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_RECORDS = 5_000
_FETCH_WAIT_MS = 1
_NO_RECORD = -1
"""The offset that a broker answers where there is no such record."""
Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True)
class Source:
    """The brokers to read topics from, and the settings to do it with."""

    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own settings, such as `kafka.security.protocol`."""
    batch_records: int | None = None
    """How many records of a topic a micro-batch takes at most; None takes all."""
    batch_bytes: int | None = None
    """The same in bytes, by the weight of a topic's last records."""
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic, the offset at which each partition begins; other partitions begin at their first.
    """

    def described(self) -> dict[str, str]:
        """Return the options of Spark's source."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            # After each poll Spark asks the broker for the first and last offset of the partition.
            "kafka.max.poll.records": str(_POLL_RECORDS),
            # It asks behind a fetch for records that are still to come, and a broker answers in
            # order. By default it holds such a fetch for half a second, a partition and task.
            "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
            **self.options,
        }


class Brokers:
    """Asks brokers about topics, by the client that Spark reads with."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self._admin = admin

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Return those of these topics that do not exist."""
        present = self._admin.listTopics().names().get()
        return [topic for topic in topics if not present.contains(topic)]

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions each of these topics has."""
        described = self._described(topics)
        return {topic: int(each.partitions().size()) for topic, each in described.items()}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id of each of these topics; a topic that is made anew gets another one."""
        nothing = str(self._jvm.org.apache.kafka.common.Uuid.ZERO_UUID.toString())
        described = self._described(topics)
        ids = {topic: str(each.topicId().toString()) for topic, each in described.items()}
        return {topic: found for topic, found in ids.items() if found != nothing}

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        wanted = self._jvm.java.util.ArrayList()
        for topic in topics:
            wanted.add(topic)
        described = self._admin.describeTopics(wanted).allTopicNames().get()
        return {topic: described[topic] for topic in wanted}

    def offsets(
        self, places: Iterable[Place], which: Literal["earliest", "latest"]
    ) -> dict[Place, int]:
        """Return the first or the end offset of each of these partitions."""
        spec = getattr(self._client.OffsetSpec, which)()
        return self._listed(places, spec, self._client.ListOffsetsOptions())

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offset at which the committed records of each partition end."""
        return self._listed(places, self._client.OffsetSpec.latest(), self._of_committed())

    def not_before(self, places: Sequence[Place], time_ms: int) -> dict[Place, int]:
        """Return an offset of each partition: all committed records before it are before a time.

        The offset is that of a record at the time or later, or of the mark of a transaction that
        was committed by then. Without either, it is the end.
        """
        spec = self._client.OffsetSpec.forTimestamp(time_ms)
        found = self._listed(places, spec, self._of_committed())
        ends = self.ends(places)
        return {place: ends[place] if at == _NO_RECORD else at for place, at in found.items()}

    @property
    def _client(self) -> Any:
        """Kafka's package of the client."""
        return self._jvm.org.apache.kafka.clients.admin

    def _of_committed(self) -> Any:
        level = self._jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
        return self._client.ListOffsetsOptions(level)

    def _listed(self, places: Iterable[Place], spec: Any, how: Any) -> dict[Place, int]:
        found_by = self._jvm.org.apache.kafka.common.TopicPartition
        asked = {place: found_by(*place) for place in places}
        specs = self._jvm.java.util.HashMap()
        for each in asked.values():
            specs.put(each, spec)
        found = self._admin.listOffsets(specs, how).all().get()
        return {place: int(found[each].offset()) for place, each in asked.items()}


@contextmanager
def asking(spark: SparkSession, source: Source) -> Iterator[Brokers]:
    """Open a client of a source's brokers, and close it afterwards."""
    jvm = java_of(spark)
    settings = jvm.java.util.HashMap()
    for name, value in source.described().items():
        if name.startswith("kafka."):
            settings[name.removeprefix("kafka.")] = value
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        yield Brokers(jvm, admin)
    finally:
        admin.close()
