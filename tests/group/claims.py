"""Any claims at all: whatever members say, one round never makes a second owner."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from hypothesis import strategies as st

from headrace.services.group.assign import assign
from headrace.services.group.member import AT_ONCE_MS, NEVER_MS, Member, Rules, Share, TaskId

TASKS = [TaskId(0, 0), TaskId(0, 1), TaskId(0, 2), TaskId(1, 0), TaskId(1, 1)]
tasks = st.frozensets(st.sampled_from(TASKS))
hops = st.sampled_from([frozenset({0, 1})] * 3 + [frozenset({0})])
lags = st.dictionaries(st.sampled_from(TASKS), st.sampled_from([0, 10, 11, 5_000]))
clients = st.sampled_from("vwxyz")
generations = st.integers(-1, 3)
claimants = st.frozensets(st.integers(0, 4), max_size=1) | st.frozensets(st.integers(0, 4))
"""Of one task: most often one, or nobody."""
rules = st.builds(
    Rules,
    acceptable_recovery_lag=st.just(10),
    max_warmup_replicas=st.integers(1, 3),
    standbys=st.integers(0, 2),
)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Member]:
    """Up to five members that say anything; the first leads, and knows all hops."""
    claims = {task: draw(claimants) for task in TASKS}
    return {
        f"m{place}": Member(
            client=draw(clients),
            hops=draw(hops) if place else frozenset({0, 1}),
            owned=frozenset(task for task, by in claims.items() if place in by),
            generation=draw(generations),
            previous=draw(tasks),
            following=draw(tasks),
            lags=draw(lags),
            capacity=draw(st.integers(1, 2)),
        )
        for place in range(draw(st.integers(1, 5)))
    }


class Round(NamedTuple):
    """The members' reports of a round, and their shares."""

    members: dict[str, Member]
    rules: Rules
    shares: dict[str, Share]

    def runners(self, task: TaskId) -> list[str]:
        """Return the members that are told to run a task."""
        return [name for name, share in self.shares.items() if task in share.active]

    def promoted(self, task: TaskId) -> list[str]:
        """Return the members that get a task next."""
        return [name for name, share in self.shares.items() if task in share.promoted]

    def owners(self, task: TaskId) -> list[str]:
        """Return the members that claim a task with the highest generation of all that claim it."""
        claimants = [name for name, member in self.members.items() if task in member.owned]
        latest = max((self.members[name].generation for name in claimants), default=0)
        return [name for name in claimants if self.members[name].generation == latest]

    def behind(self, task: TaskId, name: str) -> float:
        """By how much the best copy on a member's host is behind what is acceptable."""
        client = self.members[name].client
        of_client = [member for member in self.members.values() if member.client == client]
        if any(self.members[owner].client == client for owner in self._sole_owner(task)):
            return 0
        found = [lag for by in of_client for own, lag in by.lags.items() if own == task]
        return max(0, min(found) - self.rules.acceptable_recovery_lag) if found else inf

    def _sole_owner(self, task: TaskId) -> list[str]:
        owners = self.owners(task)
        return owners if len(owners) == 1 else []


def check_any_claims(members: dict[str, Member], rules: Rules) -> None:
    """Everything that one round promises."""
    told = Round(members, rules, assign(TASKS, members, rules))
    for task in TASKS:
        _check_task(told, task)
    learners = sum(len(share.learners) for share in told.shares.values())
    assert learners <= rules.max_warmup_replicas
    for name, share in told.shares.items():
        roles = [*share.active, *share.promoted, *share.learners, *share.standbys]
        assert len(roles) == len(set(roles)), "a task is two things to one member"
        given = set(roles) - members[name].owned
        assert {task.hop for task in given} <= members[name].hops
    _check_hurry(told)


def _check_task(told: Round, task: TaskId) -> None:
    runners, promoted, owners = told.runners(task), told.promoted(task), told.owners(task)
    assert len(runners) <= 1
    if not owners:
        assert not promoted
        able = [name for name, by in told.members.items() if task.hop in by.hops]
        best = min(told.behind(task, name) for name in able)
        assert [told.behind(task, name) for name in runners] == [best]
    elif len(owners) > 1:
        assert not runners, "a contested task was given away"
        assert not promoted
    else:
        assert runners in ([], owners), "what somebody claims was handed to a third"
        if not runners:
            assert len(promoted) == 1, "taken from an owner, and nobody gets it"
            assert told.behind(task, promoted[0]) == 0, "taken from an owner, and nobody is ready"
    running = {told.members[name].client for name in (*runners, *promoted)}
    for name, share in told.shares.items():
        if task in share.standbys:
            assert told.members[name].client not in running, "a copy where the owner is"


def _check_hurry(told: Round) -> None:
    withheld = [task for task in TASKS if not told.runners(task)]
    next_ms = sorted(share.next_rebalance_ms for share in told.shares.values())
    if withheld:
        assert set(next_ms) == {AT_ONCE_MS}
    else:
        learns = any(share.learners for share in told.shares.values())
        is_over = any(
            sum(task in share.standbys for share in told.shares.values()) > told.rules.standbys
            for task in TASKS
        )
        expected = told.rules.probing_interval_ms if learns or is_over else NEVER_MS
        assert next_ms == sorted([expected] + [NEVER_MS] * (len(next_ms) - 1))
