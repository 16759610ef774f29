"""A pipeline's topics: those that are there are checked, those that are missing are made.

A partition stays a partition from the source to the cleaned topic, unless records are spread by id
on the way: from there on it is the repartition topic's number that counts. Everything is checked
before anything is made, and made before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.contracts.errors import TopicRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.rights import rights_of
from headrace.contracts.topic_rules import findings, settings_to_make, source_warnings, takes_bytes
from headrace.contracts.topics import TopicSpec, decisions_topic
from headrace.services.kafka.cluster import connected
from headrace.services.kafka.new_topic import NewTopic
from headrace.services.kafka.rights import require
from headrace.services.settings import Settings

FROM_ANY_HOP = ("late", "dead", "decisions")
"""Topics that records of all hops go to; more partitions than needed do no harm there."""


class PreparedTopics(NamedTuple):
    """A pipeline's topics, all of them there."""

    partitions: dict[str, int]
    """How many each has, the source included."""
    made: list[str]
    takes_bytes: dict[str, int]
    """How much each takes at once, as far as we may see."""
    warnings: list[str]
    """A sentence for each thing that works, and may not be meant."""


async def prepare_topics(spec: PipelineSpec, settings: Settings) -> PreparedTopics:
    """Make what is missing; TopicRefused, a line each, if anything would lose or mix up records.

    A right that we lack is refused first (KafkaRefused).
    """
    rights = rights_of(
        spec,
        exactly_once=settings.guarantee == "exactly-once",
        decisions=settings.decisions,
    )
    async with connected(settings) as cluster:
        lacking = await require(cluster, rights)
        wanted = written_topics(spec, settings)
        names = [spec.source.topic, *(topic.name for topic in wanted)]
        counts = await cluster.partitions(names)
        needed = _needed_partitions(spec, wanted, counts)
        found = await cluster.settings(list(counts))
        # We may lack the right to see them.
        source = found.get(spec.source.topic, {})
        discovered = [
            finding
            for topic in wanted
            if topic.name in found
            for finding in findings(
                topic,
                found[topic.name],
                source,
                spec.source.max_future_ms,
                accepts_retention=settings.accept_retention,
            )
        ]
        refused = [finding.sentence for finding in discovered if finding.refused]
        _refuse([*_count_problems(spec, wanted, counts), *refused])
        new = [
            NewTopic(topic.name, needed[topic.name], settings_to_make(topic, source))
            for topic in wanted
            if topic.name not in counts
        ]
        if new:
            await cluster.make(new, settings.replication_factor)
            lacking = await require(cluster, rights)
        # Another instance, or another program, may have been faster, and of another opinion.
        counts = await cluster.partitions(names)
        found = await cluster.settings(list(counts))
        _refuse(_count_problems(spec, wanted, counts))
    warned = [finding.sentence for finding in discovered if not finding.refused]
    made = [topic.name for topic in new]
    return PreparedTopics(
        counts, made, takes_bytes(found), [*lacking, *source_warnings(spec, source), *warned]
    )


def _refuse(problems: Iterable[str]) -> None:
    lines = list(problems)
    if lines:
        raise TopicRefused("\n".join(lines))


def written_topics(spec: PipelineSpec, settings: Settings) -> list[TopicSpec]:
    """All that a pipeline writes to."""
    decisions = [decisions_topic(spec.sink.topic)] if settings.decisions else []
    return [*spec.topics(), *decisions]


def _needed_partitions(
    spec: PipelineSpec, wanted: list[TopicSpec], counts: Mapping[str, int]
) -> dict[str, int]:
    """How many partitions each topic needs, given those that are there."""
    source = spec.source.topic
    if source not in counts:
        message = (
            f"the source `{source}` does not exist; make it with as many partitions as the load"
            " needs, or correct `source.topic`"
        )
        raise TopicRefused(message)
    count = widest = counts[source]
    needed = {}
    for hop in spec.hops():
        needed[hop.changelog.name] = count
        if hop.end is not None:
            count = counts.get(hop.end.topic.name, count)
            needed[hop.end.topic.name] = count
            widest = max(widest, count)
    others = {topic.name: widest if topic.role in FROM_ANY_HOP else count for topic in wanted}
    return others | needed


def _count_problems(
    spec: PipelineSpec, wanted: list[TopicSpec], counts: Mapping[str, int]
) -> Iterator[str]:
    needed = _needed_partitions(spec, wanted, counts)
    for topic in wanted:
        has, needs = counts.get(topic.name), needed[topic.name]
        enough = has is None or has == needs or (topic.role in FROM_ANY_HOP and has > needs)
        if not enough:
            yield (
                f"`{topic.name}` has {_partitions(has)}, and needs {needs} to go with"
                f" `{_counterpart(spec, topic)}`; {_advice(topic, needs)}"
            )


def _partitions(count: int | None) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _counterpart(spec: PipelineSpec, topic: TopicSpec) -> str:
    """The topic whose partitions this one's go with."""
    for hop in spec.hops():
        if topic == hop.changelog:
            return hop.topic
    return spec.source.topic if topic.role in FROM_ANY_HOP else spec.hops()[-1].topic


def _advice(topic: TopicSpec, needs: int) -> str:
    if topic.role == "changelog":
        return "stop all instances and run `headrace reset`, which begins from the source again"
    if topic.role in {"progress", "decisions"}:
        return "delete it, and it is made anew"
    place = "sink" if topic.role == "cleaned" else topic.role
    return f"name another topic in `{place}`, or make this one anew with {needs}"
