"""Choose the seat that should run each task: sticky first, even second, hop by hop.

The steps are the proposal's three, for each hop on its own, since hops differ in weight:

1. A task stays with its previous owner, while that one has capacity.
2. It goes to the seat that has the best copy of its state and has capacity.
3. It goes to the least loaded seat.

A seat's capacity is its quota of the hop: its share by the number of its consumers, rounded so that
no task moves without need (see `quotas`). Where rounding leaves tasks over, previous owners come
before holders of copies, and those before all others: the proposal's tie-breaks. A seat with too
many tasks gives up first those of which a seat with too few has a good copy.
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
    """The seats that could run tasks, and what is known of them before any task is placed."""

    capacities: Mapping[int, Mapping[str, int]]
    """By hop: the seats that can run it, and their numbers of consumers."""
    owners: Mapping[TaskId, str]
    """By task: the seat that runs it, ran it last, or was promised it; all three count alike."""
    copies: Mapping[TaskId, Mapping[str, int]]
    """By task: the seats with a copy, and how many records it lacks beyond the acceptable."""


def place(tasks: Iterable[TaskId], seats: Seats) -> dict[TaskId, str]:
    """Return a seat for every task."""
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
    """Yield the first step's tasks with their owners; tasks that are better kept come first."""
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
    """Yield the second step's tasks with the holders of copies, the best copies first."""
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
    """Return the third step's seat."""
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
