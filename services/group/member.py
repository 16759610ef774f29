"""A member's report when it joins the group, and its assignment.

A task is a partition of a hop, with its changelog partition. It has one owner, or none. Other
members may follow its changelog beside the owner: standbys, which take over when the owner dies,
and learners, to which the task moves as soon as they have caught up. A promoted member gets the
task in the next round: its owner gives it up in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

AT_ONCE_MS = 0
"""The next rebalance follows this one without waiting."""
NEVER_MS = -1
"""No rebalance is planned."""


class TaskId(NamedTuple):
    """A partition of a hop (the proposal's sub-topology)."""

    hop: int
    partition: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The leader's settings for sharing tasks out; equal in all instances of a pipeline."""

    acceptable_recovery_lag: int = 1_000
    """A copy that lacks no more changelog records than these has caught up."""
    max_warmup_replicas: int = 2
    """The most learners at once, in the whole group; at least one, or nothing could ever move."""
    standbys: int = 0
    """The number of copies of each task beside its owner's."""
    probing_interval_ms: int = 600_000
    """While tasks are not where they should be, the group rebalances this often."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member's report."""

    client: str
    """The owner of its state folder: members of one client share a host, and the copies on it."""
    hops: frozenset[int]
    """The hops whose topics it subscribes to."""
    owned: frozenset[TaskId] = frozenset()
    """The tasks that it runs, and goes on running until it is told otherwise."""
    generation: int = -1
    """The generation in which it was last told what to run; -1 where it was never told."""
    previous: frozenset[TaskId] = frozenset()
    """Tasks that it runs, ran until cut off or stopped, or was promised; not those given up."""
    following: frozenset[TaskId] = frozenset()
    """The tasks whose changelogs it reads."""
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    """For each task of which it has a copy and which it does not run: the records it lacks."""
    capacity: int = 1
    """The number of consumers that it counts for."""


@dataclass(frozen=True, slots=True)
class Share:
    """A member's assignment; a task stands in one of the four sets at most."""

    active: frozenset[TaskId] = frozenset()
    promoted: frozenset[TaskId] = frozenset()
    learners: frozenset[TaskId] = frozenset()
    standbys: frozenset[TaskId] = frozenset()
    next_rebalance_ms: int = NEVER_MS
    """The milliseconds until it joins again; also `AT_ONCE_MS` or `NEVER_MS`."""
