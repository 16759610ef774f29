"""Who owns what, by what the members themselves say.

A member claims what it runs, with the generation in which it was last told to. Of two claims the
higher generation counts: the other member missed an assignment, and gives the task up as soon as it
hears. A member that the group has thrown out claims nothing when it comes back, since it has let
go of everything before it joins; so the only claim to a task is a true one, however old it is.

Two claims of one generation cannot be told apart. Then nobody owns the task, everybody who claims
it gives it up, and the next round gives it to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.services.group.member import Member, TaskId


class Claims(NamedTuple):
    """What the members claim; a task that is in neither is claimed by nobody."""

    owners: dict[TaskId, str]
    contested: frozenset[TaskId]


def read_claims(members: Mapping[str, Member]) -> Claims:
    """Who owns each task that anybody claims."""
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
