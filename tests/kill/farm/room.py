"""A disk of a worker's own, which is full when the farm says so: a small filesystem in memory.

Only who may mount has one (root, and not in every container). Elsewhere the strike is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_ROOM_BYTES = 512 << 20
"""More than any run needs; memory is taken for what is written alone."""


class Room:
    """One worker's disk, for the rest of a run."""

    def __init__(self, folder: Path) -> None:
        """Make it; nothing is mounted yet."""
        self.folder = folder
        self.is_mounted = False

    def mount(self) -> bool:
        """Have a filesystem there; whether that was allowed."""
        if not self.is_mounted:
            self.folder.mkdir(exist_ok=True)
            options = f"size={_ROOM_BYTES}"
            self.is_mounted = _mount("-t", "tmpfs", "-o", options, "tmpfs", str(self.folder))
        return self.is_mounted

    def fill(self, left_bytes: int) -> None:
        """Leave so much room beside what is there now, at most."""
        found = os.statvfs(self.folder)
        used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
        # A worker may write meanwhile, and no filesystem shrinks below what is there.
        while not self._resize(used_bytes + left_bytes):
            used_bytes += 1 << 20
            assert used_bytes < _ROOM_BYTES, f"{self.folder} cannot be filled"

    def make_room(self) -> None:
        """Let there be enough."""
        assert self._resize(_ROOM_BYTES), f"{self.folder} did not grow"

    def leave(self) -> None:
        """Leave what is there on the ordinary disk, in the same folder, for whoever looks later."""
        if self.is_mounted:
            kept = self.folder.with_name(f"{self.folder.name}-kept")
            shutil.copytree(self.folder, kept)
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)  # noqa: S607
            self.is_mounted = False
            self.folder.rmdir()
            kept.rename(self.folder)

    def _resize(self, size_bytes: int) -> bool:
        return _mount("-o", f"remount,size={size_bytes}", str(self.folder))


def _mount(*words: str) -> bool:
    done = subprocess.run(["mount", *words], capture_output=True, check=False)  # noqa: S607
    return done.returncode == 0
