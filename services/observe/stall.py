"""Whether a worker is stuck: something is to be done, and for too long nothing moved.

    phase       something is to be done while                   it moves when
    restoring   a task restores                                 records are restored
    fetching    a task runs, nothing waits in it, and its       the consumer's position moves
                partition can be read further
    processing  fetched records wait to be decided, and the     a record is decided
                task for no other that is behind
    committing  decided records wait to be committed            a commit succeeds
    closing     a task closes                                   records are decided, commits succeed
    joining     the group's coordinator answered before         it answers again

Where nothing is to be done nothing is stuck: a quiet topic is no reason to stop a worker. Neither
is a task that waits for a schema registry: another worker would wait for it as well. But a task
that fails to commit, begins again from what is committed, and fails again, has something to commit
now and then only; so where the same is to be committed soon again, all of that time counts.

All is a fold over snapshots: pure, and right however often somebody looks. A look that comes long
after the one before does not count in full, since a process that did not run (it was stopped, or
its machine slept) was not stuck.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.services.observe.snapshot import TaskSnapshot, WorkerSnapshot

Phase = Literal["restoring", "fetching", "processing", "committing", "closing", "joining"]
UNSEEN_S_MAX = 5.0
"""Time between two looks counts up to here; look more often than this."""
_AGAIN_S = 30.0
"""How soon the same must be to be committed again to have been stuck all the while."""


class Place(NamedTuple):
    """A place that can be stuck, and the phase it is in."""

    phase: Phase
    hop: str = ""
    topic: str = ""
    partition: int | None = None
    """None where it is the whole worker."""


class Still(NamedTuple):
    """How long something that is to be done has not moved."""

    mark: Hashable
    """It changes when the place moves on."""
    seconds: float
    why: str
    """A clause for people that names what waits."""
    is_due: bool = True
    """Whether something is to be done now; if not, it was a moment ago."""
    away_s: float = 0.0
    """For how long nothing has been to be done."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The watchdog's findings until now."""

    at_s: float | None = None
    still: Mapping[Place, Still] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stall:
    """Something that has been stuck for too long."""

    place: Place
    seconds: float
    sentence: str
    """The sentence names the place, the phase, the time, and why it matters."""


def watch(before: Watched, snapshot: WorkerSnapshot) -> Watched:
    """Look again."""
    passed_s = 0.0 if before.at_s is None else min(snapshot.taken_at_s - before.at_s, UNSEEN_S_MAX)
    still: dict[Place, Still] = {}
    for place, mark, why in _to_be_done(snapshot):
        earlier = before.still.get(place)
        stays = earlier is not None and earlier.mark == mark
        still[place] = Still(mark, earlier.seconds + passed_s if earlier and stays else 0.0, why)
    for place, earlier in before.still.items():
        away_s = earlier.away_s + passed_s
        if place.phase == "committing" and place not in still and away_s <= _AGAIN_S:
            seconds = earlier.seconds + passed_s
            still[place] = Still(earlier.mark, seconds, earlier.why, is_due=False, away_s=away_s)
    return Watched(snapshot.taken_at_s, still)


def stalls(watched: Watched, timeout_s: float) -> tuple[Stall, ...]:
    """Return the places that have been stuck for at least so long, the longest first."""
    found = [
        Stall(place, still.seconds, _sentence(place, still))
        for place, still in watched.still.items()
        if still.seconds >= timeout_s and still.is_due
    ]
    return tuple(sorted(found, key=lambda stall: (-stall.seconds, stall.place)))


Work = tuple[Place, Hashable, str]


def _to_be_done(snapshot: WorkerSnapshot) -> Iterator[Work]:
    for task in snapshot.tasks:
        for phase, mark, why in _phases(task):
            yield Place(phase, task.hop, task.topic, task.partition), mark, why
    if snapshot.heartbeat_at_s is not None:
        why = "the others may have taken over its partitions"
        yield Place("joining"), snapshot.heartbeat_at_s, why


def _phases(task: TaskSnapshot) -> Iterator[tuple[Phase, Hashable, str]]:
    """Yield the phases of a task that has something to do: its mark, and what waits for it."""
    if task.awaits_schema:
        return
    if task.state == "restoring":
        mark = (task.restored_records, task.restore_remaining)
        yield "restoring", mark, "none of its records is processed before its state is restored"
        return
    if task.waiting_records and task.waits_for is None:
        waits = f"{task.waiting_records} fetched records wait, from offset {task.position} on"
        yield "processing", task.position, waits
    elif task.state == "running" and task.waits_for is None and _can_fetch(task):
        waits = f"it could be read up to offset {task.readable_end}, and is at {task.fetched}"
        yield "fetching", (task.fetched, task.position), waits
    if task.uncommitted_records:
        waits = f"the results of {task.uncommitted_records} records cannot be read before"
        yield "committing", task.committed, waits
    if task.state == "closing":
        waits = "no other worker can take it over before"
        yield "closing", (task.position, task.committed), waits


def _can_fetch(task: TaskSnapshot) -> bool:
    """Whether there is more; a task that runs must know where it is."""
    if task.fetched is None:
        return True
    return task.readable_end is not None and task.fetched < task.readable_end


def _sentence(place: Place, still: Still) -> str:
    duration = f"{still.seconds:.0f} s"
    if place.partition is None:
        return f"the group has not answered for {duration}: {still.why}"
    return (
        f"partition {place.partition} of `{place.topic}` has not moved for {duration}"
        f" while {place.phase}: {still.why}"
    )
