"""A pipeline's hops: the stretches between two topics, each run partition by partition.

Most pipelines have one hop, from the source to the cleaned topic. `by: id` looks across partitions,
so records of one id must meet in one: what leaves the operators before it goes to a repartition
topic, spread by id, and a second hop goes on from there.

All state of a hop's partition has one changelog partition. It is closed commit by commit, so what
several operators changed together is restored together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.policies import AnyOperator, DeduplicatePolicy
from contracts.topics import TopicSpec, changelog_topic, repartition_topic

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
    return tuple(hops)


def transactional_prefix(pipeline: str, hop: Hop) -> str:
    """What the transactional ids of a hop begin with; a partition's number stands behind it."""
    return f"{pipeline}-{hop.topic}-"
