"""The leader's part of a rebalance: which member runs, learns and follows what until the next one.

A task moves in two rounds, and in no other way. The goal of a task is the member that should run it
in the end.

    nobody claims it                  a member runs it now: one that has caught up, or else the one
                                      that lacks least; if it is due to another, it moves there
                                      later
    its owner is the goal             nothing happens
    the goal has not caught up        the owner goes on, and the goal learns (or waits its turn)
    the goal has caught up            the owner gives it up, and nobody gets it: the goal is
                                      promoted, all join again at once, and then nobody claims it
    two claim it (see `claims`)       both give it up, and nobody gets it

So a round gives a task only to its present owner, or if it has no owner. No task ever has two
owners, in whatever order the members hear of the round, and even if some never hear of it.

In every round the leader finds each task's goal anew, from nothing but what the members report. The
leader remembers nothing, so any member can lead the next round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import NamedTuple

from headrace.services.group.claims import Claims, read_claims
from headrace.services.group.member import AT_ONCE_MS, NEVER_MS, Member, Rules, Share, TaskId
from headrace.services.group.places import Seats, place
from headrace.services.group.standbys import Hosts, keep_copies


@dataclass(frozen=True, slots=True)
class Group:
    """The members' reports, put together."""

    tasks: Sequence[TaskId]
    """All tasks, those that a member claims included, even if their topic cannot be seen now."""
    members: Mapping[str, Member]
    claims: Claims
    copies: Mapping[TaskId, Mapping[str, int]]
    """By task: the clients with a copy, and how many records it lacks beyond the acceptable."""

    def is_caught_up(self, task: TaskId, name: str) -> bool:
        """Return whether a member could take a task over with no more than a tail to read."""
        return self.copies[task].get(self.members[name].client) == 0


class Moves(NamedTuple):
    """The owner of each task after this round, and the tasks that are on the move."""

    runs: dict[TaskId, str]
    promoted: dict[TaskId, str]
    waiting: dict[TaskId, str]
    """By task: the member that it is due to, which has to learn it before."""


def assign(
    tasks: Iterable[TaskId], members: Mapping[str, Member], rules: Rules
) -> dict[str, Share]:
    """Return the share of every member."""
    assert rules.max_warmup_replicas > 0
    claims = read_claims(members)
    everything = sorted({*tasks, *claims.owners, *claims.contested})
    copies = copies_of(everything, members, claims, rules.acceptable_recovery_lag)
    group = Group(everything, members, claims, copies)
    moves = decide(group, find_goals(group))
    learners = admit(group, moves.waiting, rules.max_warmup_replicas)
    standbys = _standbys(group, moves, learners, rules.standbys)
    first = min(members)
    is_over = any(len(by) > rules.standbys for by in standbys.values())
    looks_again = bool(moves.waiting) or is_over
    return {
        name: Share(
            active=_of(name, moves.runs),
            promoted=_of(name, moves.promoted),
            learners=_of(name, learners),
            standbys=frozenset(task for task, by in standbys.items() if name in by),
            next_rebalance_ms=next_rebalance_ms(
                group, moves, rules, looks_again=looks_again and name == first
            ),
        )
        for name in members
    }


def _of(name: str, places: Mapping[TaskId, str]) -> frozenset[TaskId]:
    return frozenset(task for task, by in places.items() if by == name)


def copies_of(
    tasks: Iterable[TaskId], members: Mapping[str, Member], claims: Claims, acceptable: int
) -> dict[TaskId, dict[str, int]]:
    """Return which clients have a copy of each task; an owner's own copy lacks nothing."""
    copies: dict[TaskId, dict[str, int]] = {task: {} for task in tasks}
    for member in members.values():
        for task, lag in member.lags.items():
            if task in copies:
                behind = max(0, lag - acceptable)
                copies[task][member.client] = min(behind, copies[task].get(member.client, behind))
    for task, owner in claims.owners.items():
        copies[task][members[owner].client] = 0
    return copies


def find_goals(group: Group) -> dict[TaskId, str]:
    """Return which member should run each task in the end.

    The tasks are placed on clients first, and then on the members of each client.
    """
    clients = {name: member.client for name, member in group.members.items()}
    of_client: dict[str, list[TaskId]] = defaultdict(list)
    for task, client in place(group.tasks, seats_of(group, clients, group.copies)).items():
        of_client[client].append(task)
    goals: dict[TaskId, str] = {}
    for client, tasks in of_client.items():
        names = {name: name for name, of_member in clients.items() if of_member == client}
        # A client's members share the copies on their host, so they differ only in what they run.
        goals |= place(tasks, seats_of(group, names, {}))
    return goals


def seats_of(
    group: Group, seats: Mapping[str, str], copies: Mapping[TaskId, Mapping[str, int]]
) -> Seats:
    """Group some members into seats, either one seat a client or one seat a member."""
    owners = {task: seats[name] for task, name in group.claims.owners.items() if name in seats}
    previous: dict[TaskId, tuple[float, str]] = {}
    for name, seat in seats.items():
        for task in group.members[name].previous & group.copies.keys():
            # Several members may report the task as theirs: the better copy counts.
            found = copies.get(task, {}).get(seat, inf), seat
            previous[task] = min(found, previous.get(task, found))
    owners = {task: seat for task, (_, seat) in previous.items()} | owners
    return Seats(_capacities(group.members, seats), owners, copies)


def _capacities(
    members: Mapping[str, Member], seats: Mapping[str, str]
) -> dict[int, dict[str, int]]:
    capacities: dict[int, dict[str, int]] = defaultdict(dict)
    for name, seat in seats.items():
        for hop in members[name].hops:
            of_hop = capacities[hop]
            of_hop[seat] = of_hop.get(seat, 0) + members[name].capacity
    return capacities


def decide(group: Group, goals: Mapping[TaskId, str]) -> Moves:
    """Apply the table at the top of this module."""
    moves = Moves({}, {}, {})
    orphans = []
    for task in group.tasks:
        owner, goal = group.claims.owners.get(task), goals[task]
        if task in group.claims.contested:
            continue
        if owner is None:
            orphans.append(task)
        elif owner == goal or not group.is_caught_up(task, goal):
            moves.runs[task] = owner
        else:
            moves.promoted[task] = goal
    load = Counter(moves.runs.values())
    for task in orphans:
        name = moves.runs[task] = take_over(group, task, goals[task], load)
        load[name] += 1
    for task, name in moves.runs.items():
        if name != goals[task]:
            moves.waiting[task] = goals[task]
    return moves


def take_over(group: Group, task: TaskId, goal: str, load: Mapping[str, int]) -> str:
    """Return the member that runs a task without an owner: the one that can begin first."""

    def patience(name: str) -> tuple[float, bool, Fraction, str]:
        member = group.members[name]
        behind = group.copies[task].get(member.client, inf)
        return behind, name != goal, Fraction(load[name], member.capacity), name

    able = [name for name, member in group.members.items() if task.hop in member.hops]
    return min(able, key=patience)


def admit(group: Group, waiting: Mapping[TaskId, str], most: int) -> dict[TaskId, str]:
    """Choose the learners of this round: first the tasks that are nearest to the end of learning.

    So no learner begins in vain.
    """

    def to_learn(task: TaskId) -> tuple[float, TaskId]:
        return group.copies[task].get(group.members[waiting[task]].client, inf), task

    return {task: waiting[task] for task in sorted(waiting, key=to_learn)[:most]}


def next_rebalance_ms(group: Group, moves: Moves, rules: Rules, *, looks_again: bool) -> int:
    """Return when a member joins again by itself.

    Learners ask for the rebalance that promotes them. In case they cannot, one member joins again
    now and then, also while a copy stands in for one that has not caught up: the group gives such a
    copy up in a later round. If that member dies, its death causes a rebalance.
    """
    if len(moves.runs) < len(group.tasks):
        return AT_ONCE_MS
    return rules.probing_interval_ms if looks_again else NEVER_MS


def _standbys(
    group: Group, moves: Moves, learners: Mapping[TaskId, str], count: int
) -> dict[TaskId, set[str]]:
    """Return the members that keep a copy of each task."""
    members = group.members
    following: dict[TaskId, set[str]] = defaultdict(set)
    running: dict[TaskId, set[str]] = defaultdict(set)
    for member in members.values():
        for task in member.following:
            following[task].add(member.client)
    for places in (moves.runs, moves.promoted, learners):
        for task, name in places.items():
            running[task].add(members[name].client)
    capacities = _capacities(members, {name: member.client for name, member in members.items()})
    kept = keep_copies(group.tasks, count, Hosts(capacities, group.copies, following, running))
    load: Counter[str] = Counter()
    chosen: dict[TaskId, set[str]] = {}
    for task, clients in kept.items():
        chosen[task] = {_member_of(client, task, members, load) for client in clients}
        load.update(chosen[task])
    return chosen


def _member_of(
    client: str, task: TaskId, members: Mapping[str, Member], load: Mapping[str, int]
) -> str:
    """Return the member of a client that keeps its copy: the one that does, or the least busy."""
    able = [
        name
        for name, member in members.items()
        if member.client == client and task.hop in member.hops
    ]
    return min(able, key=lambda name: (task not in members[name].following, load[name], name))
