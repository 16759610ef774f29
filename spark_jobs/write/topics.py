"""Create the missing topics of a query, and refuse topics that lose records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.contracts.errors import KafkaUnreachable, TopicRefused
from headrace.contracts.topic_rules import Setting, findings
from headrace.contracts.topics import TopicSpec
from headrace.spark_jobs.write.markers import ASK_AGAIN_S, WITHIN_S, ask_until_known, trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKERS_SEGMENT_MS = 3_600_000
"""Only closed segments are compacted, and a query writes a marker every few seconds."""
_BROKERS_CHOICE = -1
_SET_ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
BATCH_BYTES = 1_000_000
"""The size of a batch that a topic takes by default, with some room; librdkafka's own choice."""


class Checked(NamedTuple):
    """The properties of the topics to write to."""

    takes_bytes: dict[str, int]
    """The largest batch that each topic takes."""
    warnings: list[str]
    """A sentence for each setting that works, but may not be meant."""


def check_topics(
    client: Mapping[str, str], topics: Mapping[TopicSpec, int], *, accepts_retention: bool = False
) -> Checked:
    """Create missing topics with so many partitions, and refuse topics that delete records."""
    with _kafka("topics cannot be made ready") as within_s:
        admin = AdminClient(dict(client))
        there = admin.list_topics(timeout=within_s).topics
        missing = {topic: count for topic, count in topics.items() if topic.name not in there}
        _make(admin, {topic.name: (count, topic.settings()) for topic, count in missing.items()})
        settings = {one: _settings(admin, one.name) for one in topics}
    discovered = [
        finding
        for topic, found in settings.items()
        if topic not in missing
        for finding in findings(topic, found, {}, None, accepts_retention=accepts_retention)
    ]
    refused = [finding.sentence for finding in discovered if finding.refused]
    if refused:
        raise TopicRefused("\n".join(refused))
    sizes = {one.name: int(found["max.message.bytes"].value) for one, found in settings.items()}
    return Checked(sizes, [finding.sentence for finding in discovered])


def ensure_markers(client: Mapping[str, str], topic: str, writers: int) -> int:
    """Create or widen the topic of markers, a partition a writer; return how many it had."""
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.ms": str(_MARKERS_SEGMENT_MS),
    }
    with _kafka(f"the markers in `{topic}` cannot be made ready") as within_s:
        admin = AdminClient(dict(client))
        found = admin.list_topics(timeout=within_s).topics.get(topic)
        if found is None:
            _make(admin, {topic: (writers, settings)})
            _wait_for_leaders(admin, topic, writers)
            return 0
        policy = _settings(admin, topic)["cleanup.policy"].value
        if policy != "compact":
            message = (
                f"`{topic}` says what the query has written, and its cleanup.policy is {policy},"
                " which would forget it; set it to compact"
            )
            raise TopicRefused(message)
        have = len(found.partitions)
        if have < writers:
            _wait(admin.create_partitions([NewPartitions(topic, writers)]))
            _wait_for_leaders(admin, topic, writers)
        return have


def partitions_of_markers(client: Mapping[str, str], topic: str) -> int:
    """Return how many partitions the topic of markers has, zero if it is missing."""
    with _kafka(f"the markers in `{topic}` cannot be read") as within_s:
        found = AdminClient(dict(client)).list_topics(timeout=within_s).topics.get(topic)
        return 0 if found is None else len(found.partitions)


def _make(admin: AdminClient, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
    wanted = [
        NewTopic(name, count, _BROKERS_CHOICE, config=settings)
        for name, (count, settings) in topics.items()
    ]
    if wanted:
        _wait(admin.create_topics(wanted))


def _wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        found = admin.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        if len(found) >= partitions and all(one.leader >= 0 for one in found.values()):
            return
        if time.monotonic() > give_up_at:
            message = f"`{topic}` has no leader for each partition after {WITHIN_S:g} s"
            raise KafkaUnreachable(message)
        time.sleep(ASK_AGAIN_S)


def _settings(admin: AdminClient, topic: str) -> dict[str, Setting]:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def ask() -> Mapping[str, Any]:
        (future,) = admin.describe_configs([resource]).values()
        found: Mapping[str, Any] = future.result(WITHIN_S)
        return found

    # Another broker than the one that made the topic may answer, and hear of it later.
    found = ask_until_known(ask, {KafkaError.UNKNOWN_TOPIC_OR_PART})
    return {
        name: Setting(entry.value, entry.source == _SET_ON_TOPIC) for name, entry in found.items()
    }


def _wait(futures: Mapping[str, Future[Any]]) -> None:
    for future in futures.values():
        try:
            future.result(WITHIN_S)
        except KafkaException as error:
            # Another driver, or an earlier request that timed out, created it first.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


@contextmanager
def _kafka(what: str) -> Iterator[float]:
    """Raise one sentence if no broker answers, or one refuses the job."""
    try:
        yield WITHIN_S
    except KafkaException as error:
        raise trouble(what, error) from error
