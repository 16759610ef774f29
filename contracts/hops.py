"""A pipeline's hops: the stretches between two topics, each run partition by partition.

Most pipelines have one hop, from the source to the cleaned topic. `by: id` looks across partitions,
so records of one id must meet in one: what leaves the operators before it goes to a repartition
topic, spread by id, and a second hop goes on from there.

Behind a repartition the records of many source partitions meet, in whatever order they were
read. Ids are compared over all of them as they come; whatever else goes by time needs one order.
A reorder makes it; where none does, a merge is put in front: before the first operator that needs
it, or before all where a reorder had made an order that shall last.

All state of a hop's partition has one changelog partition. It is closed commit by commit, so what
several operators changed together is restored together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
"""Names the changelog of the hop that begins at the source; later hops are named as the operator
that needs them."""


@dataclass(frozen=True, slots=True)
class Repartition:
    """Where a hop ends that is not the last."""

    topic: TopicSpec
    operator: str
    """The operator behind it, which needs this."""
    id: str
    """The selector of the id by which records are spread."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Operators between two topics."""

    name: str
    topic: str
    """Where its records come from."""
    operators: tuple[AnyOperator, ...]
    changelog: TopicSpec
    end: Repartition | None
    """None where it ends in the cleaned topic."""

    @property
    def is_first(self) -> bool:
        """Whether it reads the source."""
        return self.name == FIRST_HOP

    @property
    def called(self) -> str:
        """Its name for people, in metrics and wherever it is shown: where it begins."""
        return "source" if self.is_first else self.name


def hops_of(pipeline: str, source_topic: str, operators: Sequence[AnyOperator]) -> tuple[Hop, ...]:
    """The hops of a pipeline, in order."""
    hops = []
    name, topic = FIRST_HOP, source_topic
    stretch: list[AnyOperator] = []
    for policy in operators:
        if isinstance(policy, DeduplicatePolicy) and policy.by == "id":
            again = Repartition(
                repartition_topic(pipeline, str(policy.name)), str(policy.name), str(policy.id)
            )
            changelog = changelog_topic(pipeline, name)
            hops.append(Hop(name, topic, tuple(stretch), changelog, again))
            name, topic, stretch = again.operator, again.topic.name, []
        stretch.append(policy)
    hops.append(Hop(name, topic, tuple(stretch), changelog_topic(pipeline, name), None))
    return tuple(_in_order(hops))


def carries_source_values(hops: Sequence[Hop], hop: Hop) -> bool:
    """Whether a hop's records have the values of the source, and not an aggregate's."""
    before = hops[: [one.name for one in hops].index(hop.name)]
    return not any(isinstance(one, AggregatePolicy) for each in before for one in each.operators)


def _in_order(hops: Sequence[Hop]) -> Iterator[Hop]:
    """The hops, with a merge wherever one is needed."""
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
    """Whether what leaves it stands in order of time."""
    return isinstance(policy, MergePolicy) or (
        isinstance(policy, ReorderPolicy) and policy.grace_ms > 0
    )


def transactional_prefix(pipeline: str, hop: Hop) -> str:
    """What the transactional ids of a hop begin with; a partition's number stands behind it.

    No pipeline or topic has a slash in its name, so no two of them share an id.
    """
    return f"{pipeline}/{hop.topic}/"


def former_transactional_prefix(pipeline: str, hop: Hop) -> str:
    """What they began with before: `a` that reads `b-c` and `a-b` that reads `c` shared theirs."""
    return f"{pipeline}-{hop.topic}-"
