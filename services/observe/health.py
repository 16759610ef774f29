"""Whether a worker is well (/live) and whether it is at work (/ready).

Not alive means: end it, another one does better. So it asks for progress and not for a process
that answers, and only for progress on something that is to be done. Not ready means: wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.services.observe.snapshot import WorkerSnapshot
from headrace.services.observe.stall import Stall, Watched, stalls, watch


class Health(NamedTuple):
    """An answer, and why."""

    is_well: bool
    sentence: str


def live(found: tuple[Stall, ...]) -> Health:
    """Well while nothing that is to be done stands still for too long."""
    if found:
        return Health(is_well=False, sentence="; ".join(stall.sentence for stall in found))
    return Health(is_well=True, sentence="everything that is to be done moves")


def ready(snapshot: WorkerSnapshot) -> Health:
    """Well while every partition that is ours runs, also where none is."""
    if snapshot.state in {"starting", "stopping"}:
        return Health(is_well=False, sentence=f"the worker is {snapshot.state}")
    restoring = [task for task in snapshot.tasks if task.state == "restoring"]
    if restoring:
        names = ", ".join(f"{task.topic}/{task.partition}" for task in restoring)
        return Health(is_well=False, sentence=f"state is being restored: {names}")
    if snapshot.state == "restoring":
        return Health(is_well=False, sentence="state is being restored")
    running = sum(task.state == "running" for task in snapshot.tasks)
    return Health(is_well=True, sentence=f"partitions that run: {running}")


class Watchdog:
    """Looks at a worker again and again."""

    def __init__(self, snapshot: Callable[[], WorkerSnapshot], stall_timeout_s: float) -> None:
        """Bark where nothing moved for `stall_timeout_s`."""
        self._snapshot = snapshot
        self._timeout_s = stall_timeout_s
        self._watched = Watched()

    def look(self) -> tuple[Stall, ...]:
        """Return what is stuck now; call this at least every few seconds."""
        self._watched = watch(self._watched, self._snapshot())
        return stalls(self._watched, self._timeout_s)
