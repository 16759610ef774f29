"""A worker whose wall clock the farm sets: `python -m tests.kill.farm.clock FILE run PIPELINE`.

The file has by how much its clock is wrong, and may be written while the worker runs. It is wrong
for all Python code that reads `time.time` or `time.time_ns`: the service's own, and that of its
Kafka client. RocksDB's threads read the machine's clock, and so do log lines. No clock of the
machine is touched, and nothing must be installed.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

_SHIFT_BYTES = 8
_NS_PER_MS = 1_000_000


class WrongClock:
    """How wrong one worker's clock is."""

    def __init__(self, file: Path) -> None:
        """It is right until `set`."""
        self.file = file
        self.set(0)

    def set(self, shift_ms: int) -> None:
        """Be so far ahead, or behind if it is negative, from now on."""
        with self.file.open("r+b" if self.file.exists() else "w+b") as file:
            # A worker that has mapped the file sees the same bytes change.
            file.write(shift_ms.to_bytes(_SHIFT_BYTES, signed=True))

    @property
    def program(self) -> tuple[str, str]:
        """The module by which a worker runs under this clock, with its argument."""
        return "tests.kill.farm.clock", str(self.file)


def go_wrong(file: Path) -> None:
    """Read the wall clock as the file says, in this process, from now on."""
    with file.open("rb") as opened:
        shift = mmap.mmap(opened.fileno(), _SHIFT_BYTES, access=mmap.ACCESS_READ)
    right_ns = time.time_ns  # noqa: TID251 - its result is what others shall read

    def wrong_ns() -> int:
        return right_ns() + int.from_bytes(shift[:], signed=True) * _NS_PER_MS

    def wrong_s() -> float:
        return wrong_ns() / 1e9

    time.time_ns, time.time = wrong_ns, wrong_s  # noqa: TID251 - the same


if __name__ == "__main__":
    go_wrong(Path(sys.argv.pop(1)))
    from headrace.services.cli import main

    main()
