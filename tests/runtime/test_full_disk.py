"""A disk without room stops the service with a sentence; with room again, nothing is missing."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline, Sidecar

REFUSED = 4
SMALL_BYTES = 3 << 20
HELD_BYTES = 8_000_000
HOUR_MS = 3_600_000


class Disk(Protocol):
    """Where state lies, with little room."""

    folder: Path

    def bound(self, sidecar: Sidecar) -> None:
        """Have it hold for a process that was just started."""

    def make_room(self) -> None:
        """From now on there is enough."""


class SmallMount:
    """A filesystem of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bound(self, sidecar: Sidecar) -> None:
        """Do nothing: the disk is small for everybody."""

    def make_room(self) -> None:
        """Let it grow."""
        _mount("-o", "remount,size=256m", str(self.folder))


class SmallFiles:
    """Where nobody may mount anything: no file of the process may grow further."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._is_small = True

    def bound(self, sidecar: Sidecar) -> None:
        """Bound the files of this process."""
        if self._is_small:
            resource.prlimit(sidecar.pid, resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))

    def make_room(self) -> None:
        """Bound no further process."""
        self._is_small = False


def _mount(*words: str) -> bool:
    done = subprocess.run(["mount", *words], capture_output=True, check=False)  # noqa: S607
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if _mount("-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(folder)):
        yield SmallMount(folder)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607
    else:
        yield SmallFiles(folder)


def test_it_stops_with_a_sentence_and_goes_on_when_there_is_room(
    make_pipeline: MakePipeline, disk: Disk
) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}", partitions=2)
    pipeline.produce(some_records(800, 1, 2, value_bytes=HELD_BYTES // 800))
    for _ in range(2):
        sidecar = pipeline.start(state_folder=str(disk.folder))
        disk.bound(sidecar)
        assert sidecar.wait() == REFUSED, sidecar.log
        assert "Traceback" not in sidecar.log
        assert sidecar.last_words.startswith(f"the state in {disk.folder}")
        assert sidecar.last_words.endswith(
            "check that the disk has room and the folder may be written to"
        )
    disk.make_room()
    pipeline.produce(some_records(20, 2, 2, start_ms=2 * HOUR_MS))
    sidecar = pipeline.start(state_folder=str(disk.folder))
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
