"""What a member of the group says when it joins, and what it is told.

A task is a partition of a hop, with its changelog partition. It has one owner, or none. Beside
the owner, others may follow its changelog: standbys, which take over when the owner dies, and
learners, to whom the task moves as soon as they have caught up. A promoted member is one to whom
the next round gives the task: its owner gives it up in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

AT_ONCE_MS = 0
"""The next rebalance follows this one without waiting."""
NEVER_MS = -1
"""Nothing has to be looked at again."""


class TaskId(NamedTuple):
    """A partition of a hop (the proposal's sub-topology)."""

    hop: int
    partition: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How the leader shares the tasks out; the same in all instances of a pipeline."""

    acceptable_recovery_lag: int = 1_000
    """A copy that lacks no more changelog records than these has caught up."""
    max_warmup_replicas: int = 2
    """So many learners at once, in the whole group; at least one, or nothing could ever move."""
    standbys: int = 0
    """Copies of each task beside its owner's."""
    probing_interval_ms: int = 600_000
    """While tasks are not where they should be, the group looks again this often."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a member says of itself."""

    client: str
    """Whose state it works on: members of one client share a host, and the copies on it."""
    hops: frozenset[int]
    """The hops whose topics it subscribes to."""
    owned: frozenset[TaskId] = frozenset()
    """What it runs, and goes on running until it is told otherwise."""
    generation: int = -1
    """The last in which it was told what to run; -1 where it was never told."""
    previous: frozenset[TaskId] = frozenset()
    """What it runs, ran until it was cut off or stopped, or was promised; not what it gave up."""
    following: frozenset[TaskId] = frozenset()
    """Whose changelogs it reads."""
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    """For each task of which it has a copy and which it does not run: the records it lacks."""
    capacity: int = 1
    """How many consumers it counts for."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a member is told; a task stands in one of the four at most."""

    active: frozenset[TaskId] = frozenset()
    promoted: frozenset[TaskId] = frozenset()
    learners: frozenset[TaskId] = frozenset()
    standbys: frozenset[TaskId] = frozenset()
    next_rebalance_ms: int = NEVER_MS
    """In how many milliseconds to join again; `AT_ONCE_MS` and `NEVER_MS` are such numbers."""
