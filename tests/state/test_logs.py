"""How much of a log is left to be read by whoever opens a database, which holds the interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from headrace.services.state.rocks import RocksMemory, RocksStore

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
WRITE_BUFFER_BYTES_MAX = 8 * MIB
ROWS_AT_ONCE = 1_000
ROW_BYTES = 60
LOG_BYTES_MAX = 64 << 10
"""Read again in a few milliseconds."""
KILLED = """
import os, sys
from pathlib import Path
from tests.state.test_logs import *
store = RocksStore(Path(sys.argv[1]), RocksMemory())
for rows in rows_of(6 * MIB):
    store.write([], rows)
os._exit(9)
"""


def rows_of(size_bytes: int) -> Iterator[dict[bytes, bytes]]:
    """Small rows, so large in all; they are the dearest to be read again."""
    luck, rest = Random(0), bytes(ROW_BYTES - 20)
    for _ in range(size_bytes // ROW_BYTES // ROWS_AT_ONCE):
        yield {luck.randbytes(20): rest for _ in range(ROWS_AT_ONCE)}


def log_bytes(path: Path) -> int:
    return sum(map(size_bytes, path.glob("*.log")))


def size_bytes(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0  # It became a file meanwhile.


def test_a_closed_database_leaves_a_short_log(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "0", RocksMemory())
    *rows, last = rows_of(6 * MIB)
    for some in (*rows, last):
        store.write([], some)
    assert log_bytes(tmp_path / "0") > LOG_BYTES_MAX
    store.close()
    assert log_bytes(tmp_path / "0") <= LOG_BYTES_MAX
    again = RocksStore(tmp_path / "0", RocksMemory())
    assert again.get_many(list(last)) == list(last.values())
    again.close()


def test_no_log_is_longer_than_write_buffers_are_large(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "0", RocksMemory())
    # One is filled while another becomes a file.
    longest_bytes = 2 * WRITE_BUFFER_BYTES_MAX
    longest = 0
    for rows in rows_of(40 * MIB):
        store.write([], rows)
        give_up_at = time.monotonic() + 120
        # A thread of RocksDB deletes a log that has become a file.
        while (size := log_bytes(tmp_path / "0")) > longest_bytes and time.monotonic() < give_up_at:
            time.sleep(0.01)
        longest = max(longest, size)
    assert LOG_BYTES_MAX < longest <= longest_bytes
    store.close()


def test_the_log_of_a_process_that_was_killed_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "0"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == 9
    assert log_bytes(path) > LOG_BYTES_MAX
    RocksStore(path, RocksMemory()).close()
    assert log_bytes(path) <= LOG_BYTES_MAX
