"""The state on a killed worker's disk is committed: it is never ahead of the transaction.

It is looked at right after the kill, on a copy, since nobody else can move the group's offsets
before the group has given the dead worker up. A broker answers a commit a little before its offsets
show, so what seems to be ahead is given that time. At least once there is nothing to be seen: rows
count once the changelog has them, and offsets follow.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from tests.kill import state
from tests.kill.workers import Worker

Place = tuple[str, int]
_SHOWS_WITHIN_S = 1.0
_KNOWN_WITHIN_S = 30.0
_ASK_AGAIN_S = 0.1


class Disks:
    """Looks at the disks of workers that were killed."""

    def __init__(
        self, spec: PipelineSpec, partitions: int, committed: Callable[[], Mapping[Place, int]]
    ) -> None:
        """`committed` asks for the group's offsets."""
        self._spec = spec
        self._partitions = partitions
        self._committed = committed
        self.looked = 0
        """How many databases were looked at."""
        self.problems: list[str] = []
        self.cut_short: set[Path] = set()
        """Databases that lost a part to a strike; a worker that opens one discards it."""

    def look(self, worker: Worker) -> None:
        """Take note of every database that is ahead of what is committed."""
        reached = dict(self._reached(worker))
        self.looked += len(reached)
        self._wait_until_known()
        give_up_at = time.monotonic() + _SHOWS_WITHIN_S
        ahead = self._ahead(reached)
        while ahead and time.monotonic() < give_up_at:
            time.sleep(_ASK_AGAIN_S)
            ahead = self._ahead(reached)
        for (topic, partition), (has, committed) in ahead.items():
            self.problems.append(
                f"the disk of {worker.name} has {topic}/{partition} up to {has} after a kill, and"
                f" committed is {committed}"
            )

    def _wait_until_known(self) -> None:
        """A coordinator that was struck as well may know of no group for a while."""
        give_up_at = time.monotonic() + _KNOWN_WITHIN_S
        while not self._committed() and time.monotonic() < give_up_at:
            time.sleep(_ASK_AGAIN_S)

    def _ahead(self, reached: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        committed = self._committed()
        return {
            place: (has, committed.get(place, 0))
            for place, has in reached.items()
            if has > committed.get(place, 0)
        }

    def _reached(self, worker: Worker) -> Iterator[tuple[Place, int]]:
        for hop in self._spec.hops():
            for partition in range(self._partitions):
                folder = folder_of(worker, self._spec, hop, partition)
                if not folder.exists():
                    continue
                copy = worker.log.parent / "copy"
                shutil.copytree(folder, copy)
                try:
                    cut_short = [copy] if folder in self.cut_short else []
                    for store in state.on_disk([copy], cut_short):
                        yield (hop.topic, partition), state.source_position(self._spec, store)
                finally:
                    shutil.rmtree(copy)


def folder_of(worker: Worker, spec: PipelineSpec, hop: Hop, partition: int) -> Path:
    """Where a worker has the database of a partition."""
    return worker.state_folder / spec.pipeline / hop.name / str(partition)
