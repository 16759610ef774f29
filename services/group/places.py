"""Who should run which task: sticky first, even second, hop by hop.

The proposal's three steps, for each hop on its own, since hops differ in weight:

1. A task stays with its previous owner, while that one has capacity.
2. It goes to whoever has the best copy of its state and has capacity.
3. It goes to the least loaded.

A seat's capacity is its quota of the hop: its share by the consumers it has, rounded so that
nothing moves which need not (see `quotas`). Where rounding leaves something over, previous owners
come before holders of copies and those before anybody else: the proposal's tie-breaks.

Whoever has too much gives up first what somebody who lacks tasks has a good copy of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, groupby
from math import inf

from headrace.services.group.member import TaskId
from headrace.services.group.quotas import Stakes, find_quotas


@dataclass(frozen=True, slots=True)
class Seats:
    """Who could run tasks, and what is known of them before any is placed."""

    capacities: Mapping[int, Mapping[str, int]]
    """By hop: who can run it, and with how many consumers."""
    owners: Mapping[TaskId, str]
    """Who runs a task, ran it last, or was promised it; all the same, or promises are broken."""
    copies: Mapping[TaskId, Mapping[str, int]]
    """By task: who has a copy of its state, and by how much that is behind what is acceptable."""


def place(tasks: Iterable[TaskId], seats: Seats) -> dict[TaskId, str]:
    """A seat for every task."""
    by_hop = groupby(sorted(tasks), key=lambda task: task.hop)
    hops = {hop: list(of_hop) for hop, of_hop in by_hop}
    quotas = find_quotas({hop: _stakes(of_hop, seats) for hop, of_hop in hops.items()})
    placed: dict[TaskId, str] = {}
    for hop, quota in quotas.items():
        placed |= _place_hop(hops[hop], quota, seats)
    return placed


def _place_hop(
    tasks: Sequence[TaskId], quota: Mapping[str, int], seats: Seats
) -> dict[TaskId, str]:
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

    def reluctance(task: TaskId) -> tuple[float, TaskId]:
        copies = seats.copies.get(task, {})
        behind = min((copies[seat] for seat in copies.keys() & lacking), default=inf)
        return -behind, task

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


def _stakes(tasks: Sequence[TaskId], seats: Seats) -> Stakes:
    owners = [seats.owners.get(task) for task in tasks]
    copies = (
        seat
        for task, owner in zip(tasks, owners, strict=True)
        for seat in seats.copies.get(task, {})
        if seat != owner
    )
    return Stakes(
        tasks=len(tasks),
        capacities=seats.capacities[tasks[0].hop],
        owned=Counter(owner for owner in owners if owner is not None),
        copies=Counter(copies),
    )
