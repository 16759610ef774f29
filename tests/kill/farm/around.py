"""Strikes at what is around a worker: its disk, which fills, and its clock, which is wrong.

A worker whose disk is full ends with a sentence, and cannot be started before there is room. A
worker whose clock is wrong does all that it does otherwise: its clock is set while it works, it is
killed and started under the wrong one, and the clock is set right while it works. The next kill
starts it over state from the wrong time.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Self

from headrace.contracts.errors import StateUnavailable
from tests.kill.farm.clock import WrongClock
from tests.kill.farm.room import Room
from tests.kill.workers import Worker
from tests.kill.world import World

_WORKS_WITHIN_S = 30.0
"""A worker that gets no partitions does not work at all."""
_ENDS_WITHIN_S = 20.0
"""One that has nothing to write does not find that its disk is full."""
_LOOK_AGAIN_S = 0.1
_REFUSED = f"ended with {StateUnavailable.exit_code} "
_SAID = "check that the disk has room"


class Around:
    """The disks and clocks of the workers that always run."""

    def __init__(self, world: World) -> None:
        """Every worker runs under a clock of its own, which is right so far."""
        self._world = world
        self._rooms: dict[str, Room] = {}
        self._clocks: dict[str, WrongClock] = {}
        self.left_out: list[str] = []
        self.ended_without_room = 0
        """How often a worker found that its disk was full; one without partitions does not."""
        for worker in world.workers:
            clock = self._clocks[worker.name] = WrongClock(worker.log.with_name("clock"))
            worker.program = clock.program

    def __enter__(self) -> Self:
        """Leave it when nobody runs any more."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmount disks; what is on them stays."""
        for room in self._rooms.values():
            room.leave()

    def fill_disk(self, worker: Worker, left_bytes: int) -> int:
        """Let a worker's disk become full, and free it when the worker has ended; how many kills.

        It is started over the full disk once, and then killed and started with room.
        """
        kills = int(worker.kill())
        room = self._moved(worker)
        if room is None:
            self.left_out.append("disk full: nobody may mount a filesystem here")
            worker.start()
            return kills
        worker.start()
        self._wait_until_it_works(worker)
        room.fill(left_bytes)
        known = len(worker.unexpected)
        for _ in range(2):
            worker.start()
            self._wait_until_it_ends(worker)
        kills += int(worker.kill())
        ended = worker.unexpected[known:]
        others = [line for line in ended if not is_of_a_full_disk(line)]
        self.ended_without_room += len(ended) - len(others)
        worker.unexpected[known:] = others
        room.make_room()
        worker.start()
        return kills

    def shift_clock(self, worker: Worker, shift_ms: int, for_s: float) -> int:
        """Let a worker's clock be wrong for a while, over a kill and a start; how many kills."""
        clock = self._clocks[worker.name]
        clock.set(shift_ms)
        time.sleep(for_s / 2)
        kills = int(worker.kill())
        worker.start()
        self._wait_until_it_works(worker)
        time.sleep(for_s / 2)
        clock.set(0)
        return kills

    def _moved(self, worker: Worker) -> Room | None:
        """Move a worker's state to a disk of its own; None where that cannot be had."""
        if worker.name not in self._rooms:
            room = Room(worker.log.with_name("disk"))
            if not room.mount():
                return None
            self._rooms[worker.name] = room
            _move(worker, room.folder / "state", self._world.disks.cut_short)
        return self._rooms[worker.name]

    def _wait_until_it_works(self, worker: Worker) -> None:
        give_up_at = time.monotonic() + _WORKS_WITHIN_S
        while not worker.works() and time.monotonic() < give_up_at:
            time.sleep(_LOOK_AGAIN_S)
            worker.look()
            worker.start()

    def _wait_until_it_ends(self, worker: Worker) -> None:
        give_up_at = time.monotonic() + _ENDS_WITHIN_S
        while worker.pid is not None and time.monotonic() < give_up_at:
            time.sleep(_LOOK_AGAIN_S)
            worker.look()


def is_of_a_full_disk(line: str) -> bool:
    """Whether a worker ended as it must where there is no room, by what is noted of its end."""
    return _REFUSED in line and _SAID in line


def _move(worker: Worker, to: Path, cut_short: set[Path]) -> None:
    before = worker.state_folder
    if before.exists():
        shutil.move(before, to)
    moved = {one for one in cut_short if one.is_relative_to(before)}
    cut_short -= moved
    cut_short |= {to / one.relative_to(before) for one in moved}
    worker.state_folder = to
