"""The group as people see it."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import MemberForeign
from headrace.services.group.holdings import Holdings
from headrace.services.group.info import INFO_VERSION
from headrace.services.group.member import Rules, Share, TaskId
from headrace.services.group.round import MEMBER_CALLED, Instance, Joining, describe, lead
from headrace.services.group.view import Described, view_of
from headrace.services.group.wire import Subscription, pack_subscription
from tests.group.simulation import hops_of

HOPS = hops_of(2)
ALL = frozenset({TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)})


def test_members_show_what_they_run_and_learn_and_who_asked() -> None:
    owner, newcomer = Holdings(10), Holdings(10)
    owner.told(Share(active=ALL))
    newcomer.measured({TaskId(0, 1): 700})
    said = {
        "b": describe(
            Instance(bytes(16), HOPS), owner, 3, INFO_VERSION, Joining(5_000, MEMBER_CALLED)
        ),
        "a": describe(
            Instance(b"1" * 16, HOPS), newcomer, -1, INFO_VERSION, Joining(4_000, "it started")
        ),
    }
    told = lead(said, HOPS, {"into.state": 2, "into.by-id-1": 1}, Rules(10)).assignments
    view = view_of([Described(name, "host", said[name], told[name]) for name in said], HOPS)
    assert [member.name for member in view.members] == ["a", "b"]
    assert view.members[1].active == ALL
    assert view.members[0].learners < ALL
    assert view.members[0].lags == {TaskId(0, 1): 700}
    assert (view.rebalanced_at_ms, view.reasons) == (5_000, ("a: it started",))


def test_a_group_may_be_empty_or_of_strangers() -> None:
    assert view_of([], HOPS) == ((), None, ())
    stranger = pack_subscription(Subscription(("into.state",), None))
    with pytest.raises(MemberForeign, match="member `x` says nothing about tasks"):
        view_of([Described("x", "host", stranger, b"")], HOPS)
