"""A group as its members describe it: each member's tasks, and why the group last rebalanced.

It is read from what each member reported when it last joined, and what it was assigned then. So
lags are as of that rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.contracts.hops import Hop
from headrace.services.group.member import TaskId
from headrace.services.group.round import MEMBER_CALLED, hear, info_of, lags_of
from headrace.services.group.wire import unpack_subscription


class Described(NamedTuple):
    """A member, as a broker describes it."""

    name: str
    host: str
    said: bytes
    told: bytes


class MemberView(NamedTuple):
    """A member, as people see it."""

    name: str
    host: str
    generation: int
    """The generation, when it joined, in which it had last been told what to run."""
    active: frozenset[TaskId]
    standbys: frozenset[TaskId]
    learners: frozenset[TaskId]
    """Includes tasks that move to it, until it runs them."""
    lags: Mapping[TaskId, int]
    joined_at_ms: int
    reason: str


class GroupView(NamedTuple):
    """All members, and why they last joined."""

    members: tuple[MemberView, ...]
    rebalanced_at_ms: int | None
    """None where there is no member."""
    reasons: tuple[str, ...]
    """The members that asked for the last rebalance; none where a member left or died."""


def view_of(members: Iterable[Described], hops: Sequence[Hop]) -> GroupView:
    """Return the group; raise MemberForeign if another program is in it."""
    views = sorted((_view_of(member, hops) for member in members), key=lambda view: view.name)
    at_ms = max((view.joined_at_ms for view in views), default=None)
    asked = (f"{view.name}: {view.reason}" for view in views if view.reason != MEMBER_CALLED)
    return GroupView(tuple(views), at_ms, tuple(asked))


def _view_of(member: Described, hops: Sequence[Hop]) -> MemberView:
    subscription = unpack_subscription(member.said, f"member `{member.name}`")
    info = info_of(member.name, subscription)
    share = hear(member.told, hops).share
    return MemberView(
        member.name,
        member.host,
        subscription.generation,
        share.active,
        share.standbys,
        share.learners | share.promoted,
        lags_of(info, hops),
        info.joined_at_ms,
        info.reason,
    )
