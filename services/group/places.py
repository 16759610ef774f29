"""Who should run which task: sticky first, even second, hop by hop.

The proposal's three steps, for each hop on its own, since hops differ in weight:

1. A task stays with its previous owner, while that one has capacity.
2. It goes to whoever has the best copy of its state and has capacity.
3. It goes to the least loaded.

A seat's capacity is its share of the hop's tasks by the consumers it has, rounded down; the tasks
left over by rounding go one each to those whose share was rounded: to previous owners of more than
their capacity before holders of copies before anybody else (the proposal's tie-breaks), and among
equals to whoever has least of all hops together. So a hop is even within one, always; all hops
together are, as far as that moves no task.

Whoever has too much gives up first what somebody who lacks tasks has a good copy of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, groupby
from math import ceil, floor, inf
from typing import NamedTuple

from services.group.member import TaskId


@dataclass(frozen=True, slots=True)
class Seats:
    """Who could run tasks, and what is known of them before any is placed."""

    capacities: Mapping[int, Mapping[str, int]]
    """By hop: who can run it, and with how many consumers."""
    owners: Mapping[TaskId, str]
    """Who runs a task, or ran it last."""
    live: AbstractSet[TaskId]
    """What is being run now."""
    copies: Mapping[TaskId, Mapping[str, int]]
    """By task: who has a copy of its state, and by how much that is behind what is acceptable."""


def place(tasks: Iterable[TaskId], seats: Seats) -> dict[TaskId, str]:
    """A seat for every task."""
    by_hop = groupby(sorted(tasks), key=lambda task: task.hop)
    hops = {hop: list(of_hop) for hop, of_hop in by_hop}
    placed: dict[TaskId, str] = {}
    for hop, quota in quotas(hops, seats).items():
        placed |= _place_hop(hops[hop], quota, seats)
    return placed


def _place_hop(tasks: Sequence[TaskId], quota: Mapping[str, int], seats: Seats) -> dict[TaskId, str]:
    room = dict(quota)
    placed: dict[TaskId, str] = {}
    sticky = chain(previous_owners(tasks, quota, seats), holders(tasks, quota, seats))
    for task, seat in sticky:
        if task not in placed and room[seat]:
            placed[task] = seat
            room[seat] -= 1
    for task in tasks:
        if task not in placed:
            seat = placed[task] = _least_loaded(quota, room, seats.capacities[task.hop])
            room[seat] -= 1
    return placed


def previous_owners(
    tasks: Sequence[TaskId], quota: Mapping[str, int], seats: Seats
) -> Iterator[tuple[TaskId, str]]:
    """The first step: tasks and their owners, what is rather kept before what is rather given."""
    owned = [task for task in tasks if seats.owners.get(task) in quota]
    count = Counter(seats.owners[task] for task in owned)
    lacking = {seat for seat, most in quota.items() if count[seat] < most}

    def reluctance(task: TaskId) -> tuple[bool, float, TaskId]:
        copies = seats.copies.get(task, {})
        behind = min((copies[seat] for seat in copies.keys() & lacking), default=inf)
        return task not in seats.live, -behind, task

    for task in sorted(owned, key=reluctance):
        yield task, seats.owners[task]


def holders(
    tasks: Sequence[TaskId], quota: Mapping[str, int], seats: Seats
) -> Iterator[tuple[TaskId, str]]:
    """The second step: tasks and who has a copy, the best copies first."""
    copies = (
        (behind, task, seat)
        for task in tasks
        for seat, behind in seats.copies.get(task, {}).items()
        if seat in quota
    )
    for _, task, seat in sorted(copies):
        yield task, seat


def _least_loaded(
    quota: Mapping[str, int], room: Mapping[str, int], capacities: Mapping[str, int]
) -> str:
    """The third step."""
    free = [seat for seat in quota if room[seat]]
    return min(free, key=lambda seat: (Fraction(quota[seat] - room[seat], capacities[seat]), seat))


class _Stakes(NamedTuple):
    """What everybody has to do with the tasks of a hop."""

    tasks: int
    shares: dict[str, Fraction]
    owned: Counter[str]
    copies: Counter[str]
    """Of tasks that somebody else owns, or nobody."""

    def expected(self, seat: str) -> int:
        """How many tasks a seat has, if it keeps what it owns."""
        return min(self.owned[seat], ceil(self.shares[seat]))


def quotas(hops: Mapping[int, Sequence[TaskId]], seats: Seats) -> dict[int, dict[str, int]]:
    """How many tasks of each hop everybody gets; together, all of them."""
    stakes = {hop: _stakes(tasks, seats) for hop, tasks in hops.items()}
    # How many more than its share everybody has in all hops; expected, until a hop is decided.
    surplus: defaultdict[str, Fraction] = defaultdict(Fraction)
    for of_hop in stakes.values():
        for seat, share in of_hop.shares.items():
            surplus[seat] += of_hop.expected(seat) - share
    decided = {}
    for hop, of_hop in stakes.items():
        for seat in of_hop.shares:
            surplus[seat] -= of_hop.expected(seat)
        quota = decided[hop] = _quota(of_hop, surplus)
        for seat, count in quota.items():
            surplus[seat] += count
    return decided


def _quota(stakes: _Stakes, surplus: Mapping[str, Fraction]) -> dict[str, int]:
    quota = {seat: floor(share) for seat, share in stakes.shares.items()}

    def last_in_line(seat: str) -> tuple[bool, bool, Fraction, str]:
        has_more = stakes.owned[seat] > quota[seat]
        has_copies = stakes.owned[seat] + stakes.copies[seat] > quota[seat]
        return not has_more, not has_copies, surplus[seat] + quota[seat], seat

    rounded = [seat for seat, share in stakes.shares.items() if share > quota[seat]]
    left_over = stakes.tasks - sum(quota.values())
    for seat in sorted(rounded, key=last_in_line)[:left_over]:
        quota[seat] += 1
    return quota


def _stakes(tasks: Sequence[TaskId], seats: Seats) -> _Stakes:
    capacities = seats.capacities[tasks[0].hop]
    total = sum(capacities.values())
    return _Stakes(
        len(tasks),
        {seat: Fraction(len(tasks) * own, total) for seat, own in capacities.items()},
        Counter(seats.owners[task] for task in tasks if task in seats.owners),
        Counter(
            seat
            for task in tasks
            for seat in seats.copies.get(task, {})
            if seats.owners.get(task) != seat
        ),
    )
