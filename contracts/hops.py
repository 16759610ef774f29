"""A pipeline's hops: the stretches between two topics, each run partition by partition.

Most pipelines have one hop, from the source to the cleaned topic. `by: id` looks across partitions,
so all records of one id must meet in one partition. The operators before it therefore write to a
repartition topic, which is spread by id, and a second hop goes on from there.

Behind a repartition, one partition holds records of many source partitions, in whatever order the
first hop read them. The second hop compares ids in that order. Every other operator that goes by
time needs a single order by time. A reorder makes one. Where no reorder does, the hop gets a merge:
before the first operator that needs the order, or before all operators if a reorder before the
repartition had made an order that must last.

All state of a hop's partition has one changelog partition. Each commit closes a stretch of it, so a
restore brings back together what several operators changed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    FilterPolicy,
    MergePolicy,
    ReorderPolicy,
    SamplePolicy,
)
from headrace.contracts.topics import TopicSpec, changelog_topic, repartition_topic

FIRST_HOP = "state"
"""Names the changelog of the hop that begins at the source. A later hop has the name of the
operator that needs it."""
FILES_BESIDE_HOPS = ("client", "client.new", "lock")
"""The files in a pipeline's folder of state, which has a folder for each hop as well."""


@dataclass(frozen=True, slots=True)
class Repartition:
    """The end of a hop that is not the last one."""

    topic: TopicSpec
    operator: str
    """The operator behind the repartition, which needs it."""
    id: str
    """The selector of the id that chooses a record's partition."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Operators between two topics."""

    name: str
    topic: str
    """The topic that the hop reads."""
    operators: tuple[AnyOperator, ...]
    changelog: TopicSpec
    end: Repartition | None
    """None where the hop ends in the cleaned topic."""

    @property
    def is_first(self) -> bool:
        """Whether the hop reads the source."""
        return self.name == FIRST_HOP

    @property
    def called(self) -> str:
        """The hop's name for people, in metrics and elsewhere: where it begins."""
        return "source" if self.is_first else self.name


def hops_of(pipeline: str, source_topic: str, operators: Sequence[AnyOperator]) -> tuple[Hop, ...]:
    """Return the hops of a pipeline, in order."""
    hops = []
    name, topic = FIRST_HOP, source_topic
    stretch: list[AnyOperator] = []
    for policy in operators:
        if is_by_id(policy):
            again = Repartition(
                repartition_topic(pipeline, str(policy.name)), str(policy.name), str(policy.id)
            )
            changelog = changelog_topic(pipeline, name)
            hops.append(Hop(name, topic, tuple(stretch), changelog, again))
            name, topic, stretch = again.operator, again.topic.name, []
        stretch.append(policy)
    hops.append(Hop(name, topic, tuple(stretch), changelog_topic(pipeline, name), None))
    return tuple(_in_order(hops))


def is_by_id(policy: AnyOperator) -> TypeGuard[DeduplicatePolicy]:
    """Return whether an operator compares ids across partitions, behind a repartition."""
    return isinstance(policy, DeduplicatePolicy) and policy.by == "id"


def carries_source_values(hops: Sequence[Hop], hop: Hop) -> bool:
    """Return whether a hop's records carry values of the source, and not an aggregate's."""
    before = hops[: [one.name for one in hops].index(hop.name)]
    return not any(makes_values(one) for each in before for one in each.operators)


def makes_values(policy: AnyOperator) -> bool:
    """Return whether other values leave an operator than came to it.

    `first` and `last` keep a whole value as it came.
    """
    if not isinstance(policy, AggregatePolicy):
        return False
    return policy.function not in {"first", "last"} or policy.of not in {None, "value"}


def _in_order(hops: Sequence[Hop]) -> Iterator[Hop]:
    """Yield the hops, with a merge wherever one is needed."""
    was_ordered = False
    for hop in hops:
        operators = hop.operators if hop.is_first else _merged(hop, was_ordered=was_ordered)
        was_ordered = any(map(makes_order, operators))
        yield replace(hop, operators=operators)


def _merged(hop: Hop, *, was_ordered: bool) -> tuple[AnyOperator, ...]:
    merge = f"{hop.name}-merge"
    needs_order = (
        place
        for place, policy in enumerate(hop.operators)
        if was_ordered or not isinstance(policy, DeduplicatePolicy | FilterPolicy | SamplePolicy)
    )
    place = next(needs_order, None)
    if place is None or makes_order(hop.operators[place]):
        return hop.operators
    one = MergePolicy(name=merge, store=merge)
    return (*hop.operators[:place], one, *hop.operators[place:])


def makes_order(policy: AnyOperator) -> bool:
    """Return whether the operator emits in order of time."""
    return isinstance(policy, MergePolicy) or (
        isinstance(policy, ReorderPolicy) and policy.grace_ms > 0
    )


def transactional_prefix(pipeline: str, hop: Hop) -> str:
    """Return the prefix of a hop's transactional ids; a partition's number follows it.

    No pipeline or topic has a slash in its name, so no two hops share an id.
    """
    return f"{pipeline}/{hop.topic}/"


def former_transactional_prefix(pipeline: str, hop: Hop) -> str:
    """Return the prefix of older versions.

    There, pipeline `a` reading `b-c` and pipeline `a-b` reading `c` shared their ids.
    """
    return f"{pipeline}-{hop.topic}-"
