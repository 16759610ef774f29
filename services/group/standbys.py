"""Choose the hosts that keep a copy of a task beside its owner: where one is already, and evenly.

A copy that should move stays where it is until the new one has caught up, so evenness never costs a
copy. No host keeps a copy of a task that one of its own members runs, or is about to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

from headrace.services.group.member import TaskId


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that could keep copies."""

    capacities: Mapping[int, Mapping[str, int]]
    """By hop: the hosts that have consumers for it, and how many."""
    copies: Mapping[TaskId, Mapping[str, int]]
    """By task: the hosts with a copy, and how many records it lacks beyond the acceptable."""
    following: Mapping[TaskId, AbstractSet[str]]
    """By task: the hosts that follow the changelog now."""
    running: Mapping[TaskId, AbstractSet[str]]
    """By task: the hosts that run it, or are about to."""


def keep_copies(tasks: Sequence[TaskId], count: int, hosts: Hosts) -> dict[TaskId, list[str]]:
    """Return the hosts that keep a copy of each task: `count`, or fewer if there are not as many.

    Hosts whose copy has caught up stand in for those whose copy has not, and come on top.
    """
    if not count:
        return {}
    capacities = _capacities(hosts)
    most = _most(len(tasks) * count, capacities)
    load: Counter[str] = Counter()
    kept: dict[TaskId, list[str]] = {task: [] for task in tasks}
    for task in tasks:
        for host in _holders(task, hosts):
            if len(kept[task]) < count and load[host] < most[host]:
                kept[task].append(host)
                load[host] += 1
    load += Counter(host for by in hosts.running.values() for host in by)
    for task in tasks:
        free = sorted(
            (Fraction(load[host], capacities[host]), host)
            for host in _eligible(task, hosts)
            if host not in kept[task]
        )
        for _, host in free[: count - len(kept[task])]:
            kept[task].append(host)
            load[host] += 1
    for task in tasks:
        kept[task] += _stand_ins(task, kept[task], hosts)
    return kept


def _eligible(task: TaskId, hosts: Hosts) -> Iterator[str]:
    running = hosts.running.get(task, frozenset())
    return (host for host in hosts.capacities[task.hop] if host not in running)


def _holders(task: TaskId, hosts: Hosts) -> list[str]:
    """Return the hosts with a copy, the best first; of equals, those that follow the changelog."""
    copies = hosts.copies.get(task, {})
    followers = hosts.following.get(task, frozenset())
    eligible = [host for host in _eligible(task, hosts) if host in copies]
    return sorted(eligible, key=lambda host: (copies[host], host not in followers, host))


def _stand_ins(task: TaskId, kept: Sequence[str], hosts: Hosts) -> list[str]:
    """Return hosts whose copies have caught up, one for each chosen host whose copy has not."""
    copies = hosts.copies.get(task, {})
    followers = hosts.following.get(task, frozenset())
    missing = sum(copies.get(host) != 0 for host in kept)
    return [
        host
        for host in _holders(task, hosts)
        if host in followers and host not in kept and copies[host] == 0
    ][:missing]


def _capacities(hosts: Hosts) -> dict[str, int]:
    capacities: dict[str, int] = {}
    for of_hop in hosts.capacities.values():
        for host, own in of_hop.items():
            capacities[host] = max(own, capacities.get(host, 0))
    return capacities


def _most(copies: int, capacities: Mapping[str, int]) -> dict[str, int]:
    """Return each host's even share of the copies, rounded up."""
    total = sum(capacities.values())
    return {host: -(-copies * own // total) for host, own in capacities.items()}
