"""A clock that is wrong for one process, and a disk that is full when it is said so."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from tests.kill.farm.around import is_of_a_full_disk
from tests.kill.farm.clock import WrongClock, go_wrong
from tests.kill.farm.room import Room

HOUR_MS = 3_600_000


def test_a_clock_is_wrong_by_what_was_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000)
    clock = WrongClock(tmp_path / "clock")
    go_wrong(clock.file)
    assert (time.time(), time.time_ns()) == (1_000.0, 1_000_000_000_000)  # noqa: TID251
    clock.set(HOUR_MS)
    assert (time.time(), time.time_ns()) == (4_600.0, 4_600_000_000_000)  # noqa: TID251
    clock.set(-HOUR_MS)
    assert (time.time(), time.time_ns()) == (-2_600.0, -2_600_000_000_000)  # noqa: TID251


def test_an_end_for_want_of_room_is_told_from_other_ends() -> None:
    rocks = "the state in /d/state cannot be read or written (IO error: No space left on device)"
    said = f"{rocks}; check that the disk has room and the folder may be written to"
    assert is_of_a_full_disk(f"worker-0 ended with 4 by itself: {said}")
    damaged = "the state in /d/state is damaged (Corruption); delete the folder"
    for line in (f"ended with 1 by itself: {said}", f"ended with 4 by itself: {damaged}"):
        assert not is_of_a_full_disk(f"worker-0 {line}")


def test_a_disk_is_full_until_there_is_room(tmp_path: Path) -> None:
    room = Room(tmp_path / "disk")
    if not room.mount():
        pytest.skip("nobody may mount a filesystem here")
    try:
        file = room.folder / "file"
        file.write_bytes(b"before" * 1_000)
        room.fill(0)
        with pytest.raises(OSError, match="No space") as full:
            (room.folder / "more").write_bytes(bytes(1 << 20))
        assert full.value.errno == errno.ENOSPC
        room.make_room()
        (room.folder / "more").write_bytes(bytes(1 << 20))
    finally:
        room.leave()
    assert file.read_bytes() == b"before" * 1_000
    assert not room.folder.is_mount()
