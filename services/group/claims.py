"""Find out who owns which task from the claims of the members.

A member claims the tasks that it runs, with the generation in which it was last told to run them.
Of two claims, the one of the higher generation counts: the other member missed an assignment, and
gives the task up as soon as it hears. A member that the group has thrown out claims nothing when it
comes back, since it closes all of its tasks before it joins. So if there is only one claim to a
task, it is true, however old it is.

Two claims of one generation cannot be told apart. Then nobody owns the task, every member that
claims it gives it up, and the next round gives it to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.services.group.member import Member, TaskId


class Claims(NamedTuple):
    """The claims of all members; a task in neither field is claimed by nobody."""

    owners: dict[TaskId, str]
    contested: frozenset[TaskId]


def read_claims(members: Mapping[str, Member]) -> Claims:
    """Return the owner of each task that a member claims, and the contested tasks."""
    claims: dict[TaskId, list[tuple[int, str]]] = {}
    for name, member in members.items():
        for task in member.owned:
            claims.setdefault(task, []).append((member.generation, name))
    owners: dict[TaskId, str] = {}
    contested = set()
    for task, by in claims.items():
        latest, owner = max(by)
        if sum(generation == latest for generation, _ in by) == 1:
            owners[task] = owner
        else:
            contested.add(task)
    return Claims(owners, frozenset(contested))
