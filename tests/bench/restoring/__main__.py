"""`python -m tests.bench.restoring`: a compacted changelog of any size, restored by one process.

The changelog is as compaction leaves it: each row once, and the end of the last commit behind all
of them. A process of its own restores it, as a task does, and says what it took: its peak memory,
and for how long at most its main thread did not get the interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from aiokafka.structs import TopicPartition

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.kafka.security import client_options
from headrace.services.runtime.changelog.restorer import Restorer
from headrace.services.runtime.input.fetched import install_records
from headrace.services.runtime.machine.garbage import collect_by_clock_alone
from headrace.services.settings import Settings
from headrace.services.state.changelog import POSITION
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.kafka.clients import Clients

_TOPIC = "changelog"
_SEGMENT_BYTES = 64 << 20
_ROWS_AT_ONCE = 200_000
_NAP_S = 0.001
_BROKER_MIB = 512


def main() -> None:
    """Fill a changelog and restore it, in a process each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--row-bytes", type=int, default=100)
    parser.add_argument("--memory", default="512MiB", help="HEADRACE_MEMORY")
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        asyncio.run(_restore(options.servers, options.folder, options.memory))
        return
    with TemporaryDirectory(prefix="restore-", ignore_cleanup_errors=True) as temporary:
        broker = EmbeddedBroker(Path(temporary) / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            _fill(Clients(broker.bootstrap_servers), options.rows, options.row_bytes)
            command = [sys.executable, "-m", "tests.bench.restoring", "--memory", options.memory]
            command += ["--servers", broker.bootstrap_servers]
            subprocess.run([*command, "--folder", f"{temporary}/state"], check=True)
        finally:
            broker.stop()


def _fill(clients: Clients, rows: int, row_bytes: int) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)}
    clients.make_topic(_TOPIC, 1, settings)
    for first in range(0, rows, _ROWS_AT_ONCE):
        clients.produce(_TOPIC, _rows(first, min(rows, first + _ROWS_AT_ONCE), row_bytes))
    clients.produce(_TOPIC, [Record(POSITION, bytes(16), 0, (), "", 0, None)])


def _rows(first: int, end: int, row_bytes: int) -> Iterator[Record]:
    for number in range(first, end):
        row = number.to_bytes(8, "big") * (row_bytes // 8)
        yield Record(b"\x05table%016d" % number, row, 0, (), "", 0, None)


class _Watch:
    """How long, at most, a thread that wants to run did not get the interpreter."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        last_s = time.perf_counter()
        while not self._is_over.is_set():
            time.sleep(_NAP_S)
            now_s = time.perf_counter()
            self.longest_s = max(self.longest_s, now_s - last_s - _NAP_S)
            last_s = now_s


async def _restore(servers: str, folder: Path, memory: str) -> None:
    collect_by_clock_alone()
    install_records()
    settings = Settings.model_validate({"bootstrap_servers": servers, "memory_bytes": memory})
    assert settings.memory_bytes is not None
    failures: list[BaseException] = []
    restorer = Restorer(client_options(settings, "restore"), failures.append)
    state = PartitionState(folder / "0", "bench", RocksMemory(settings.memory_bytes), 0)
    before = _peak_mib()
    await restorer.start()
    writes = _timed_writes()
    began_s, cpu_s = time.monotonic(), time.process_time()
    with _Watch() as watch:
        restoration = state.restoration()
        end = await restorer.restore(TopicPartition(_TOPIC, 0), 0, restoration.take, is_last=True)
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    assert not failures
    state.check_whole(f"{_TOPIC}/0")
    await restorer.stop()
    state.close()
    print(
        f"{end:,} records in {took_s:.1f} s ({cpu_s:.1f} CPU-s), HEADRACE_MEMORY={memory}: peak"
        f" {_peak_mib():.0f} MiB ({before:.0f} before), interpreter held for at most"
        f" {watch.longest_s:.3f} s (other processes included; CPU time of one write:"
        f" {max(writes):.3f} s at most)"
    )


def _timed_writes() -> list[float]:
    """How much CPU time each write takes from now on: while it does, nothing else of us runs."""
    write, taken_s = RocksStore.write, []

    def timed(*arguments: Any) -> None:
        began_s = time.thread_time()
        write(*arguments)
        taken_s.append(time.thread_time() - began_s)

    RocksStore.write = timed  # type: ignore[method-assign, assignment]
    return taken_s


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
