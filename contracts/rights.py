"""The rights that a sidecar needs on the brokers, one by one.

The words are Kafka's own: an operation on a resource. The list leaves out rights that follow from
others. A user with Read or Write on a resource has Describe on it, too. A user who may write to any
topic may do so as an idempotent producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from headrace.contracts.hops import transactional_prefix
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.topics import TopicSpec, decisions_topic

Resource = Literal["topic", "group", "transactional-id", "cluster"]
Operation = Literal["Read", "Write", "Create", "Delete", "DescribeConfigs", "ClusterAction"]
_OURS_ALONE = ("changelog", "repartition")
"""Topics that the pipeline reads as well as writes, and purges."""


class Right(NamedTuple):
    """One operation on one resource."""

    operation: Operation
    resource: Resource
    name: str
    """The resource's name; a prefix of names, where it ends with `*`. Empty for the cluster."""
    why: str
    without: str = ""
    """The consequence of lacking the right; empty where nothing works without it."""

    @property
    def is_needed(self) -> bool:
        """Whether nothing works without the right."""
        return not self.without

    @property
    def is_prefix(self) -> bool:
        """Whether the right is meant for all resources whose names begin so."""
        return self.name.endswith("*")


def rights_of(spec: PipelineSpec, *, exactly_once: bool, decisions: bool) -> list[Right]:
    """Return every right that a sidecar uses."""
    source = spec.source.topic
    written = [*spec.topics(), *([decisions_topic(spec.sink.topic)] if decisions else [])]
    rights = [Right("Read", "topic", source, "the pipeline's records come from it")]
    for topic in written:
        rights += _to_write(topic, exactly_once=exactly_once)
    rights.append(
        Right("Read", "group", spec.pipeline, "its instances share partitions and commit offsets")
    )
    if exactly_once:
        rights += [
            Right(
                "Write",
                "transactional-id",
                f"{transactional_prefix(spec.pipeline, hop)}*",
                f"what comes of `{hop.topic}` is written in transactions",
            )
            for hop in spec.hops()
        ]
    return [*rights, *_to_do_without(source, written, exactly_once=exactly_once)]


def _to_write(topic: TopicSpec, *, exactly_once: bool) -> Iterator[Right]:
    yield Right("Write", "topic", topic.name, f"the {topic.role} topic is written to")
    if topic.role in _OURS_ALONE:
        yield Right("Read", "topic", topic.name, "it is read again")
    elif exactly_once:
        why = "it is searched for transactions that an outage left open"
        yield Right("Read", "topic", topic.name, why)


def _to_do_without(source: str, written: list[TopicSpec], *, exactly_once: bool) -> Iterator[Right]:
    for topic in written:
        without = "an administrator makes them"
        yield Right("Create", "topic", topic.name, "missing topics are made", without)
    for name in (source, *(topic.name for topic in written)):
        without = "nobody checks whether settings lose records or change their times"
        yield Right("DescribeConfigs", "topic", name, "settings are checked", without)
    for topic in written:
        if topic.role in _OURS_ALONE:
            without = "it stays, and these topics grow"
            yield Right("Delete", "topic", topic.name, "what is over is deleted", without)
    if exactly_once:
        why = "what an outage left open is ended"
        yield Right("ClusterAction", "cluster", "", why, "an administrator ends it")
        return
    without = "behind a reset, readers may wait for a quiet partition until its next record"
    for topic in written:
        if topic.role == "cleaned":
            yield Right("Read", "topic", topic.name, "its last record is looked up", without)
