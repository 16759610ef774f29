"""`python -m tests.bench.releasing`: what a job holds that starts a week behind.

Two cleaned topics and their progress are filled; the job of README joins them, in the micro-batches
that it takes by default or as asked, and its own metrics are read while it runs: how much was read,
how much it holds, how much memory it takes; and how large its checkpoint is. The table and the
chart go to the results' folder. With few records a micro-batch, it runs through as many of them as
a job of small micro-batches does in days: `--records 60000 --records-per-batch 10`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.request import urlopen

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.ports import free_ports
from tests.bench.processes import files_below, memory_bytes
from tests.bench.releasing.draw import Seen, drawn
from tests.bench.releasing.fill import SIDES, fill, topic_of
from tests.bench.releasing.job import run_it, write_job
from tests.kafka.clients import Clients
from tests.spark.driver import Driver

_LOOK_EVERY_S = 2.0
_BROKER_MIB = 768
_MIB = 1 << 20
_WITHIN_S = 3_600.0


class Page(NamedTuple):
    """Read the driver's metrics, by series."""

    text: str

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all series of a name with these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.text.splitlines()
            if line.startswith(f"headrace_spark_{name}{{") and all(one in line for one in wanted)
        )


def main() -> int:
    """Fill, run, watch, and write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rows", type=int, default=3_000_000, help="of progress")
    parser.add_argument("--records-per-batch", type=int, help="the job's own default if absent")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="releasing-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            fill(Clients(broker.bootstrap_servers), options.records, options.rows)
            _say("filled")
            (port,) = free_ports(1)
            job = write_job(folder, broker.bootstrap_servers, options.records_per_batch)
            driver = Driver(folder / "driver.log", run_it, job, port)
            try:
                seen = _watch(driver, port, options.records)
            finally:
                driver.kill()
        finally:
            broker.stop()
    _write_down(options, seen)
    return 0


def _watch(driver: Driver, port: int, records: int) -> list[Seen]:
    """Watch the job until it has read and released all records."""
    seen: list[Seen] = []
    began_at_s = time.monotonic()
    while time.monotonic() < began_at_s + _WITHIN_S:
        assert driver.exit_code is None, driver.log
        time.sleep(_LOOK_EVERY_S)
        page = _page(port)
        if page is None:
            continue
        session = int(driver.log_file.with_name("session").read_text())
        read = sum(page.sum("offset", topic=topic_of(side)) for side in SIDES)
        held = page.sum("step_held")
        batch = int(page.sum("batch"))
        if not seen or (read, held, batch) != seen[-1][1:4]:
            at_s = time.monotonic() - began_at_s
            kept = files_below(driver.log_file.with_name("checkpoint")).values()
            kept_mib = sum(file.st_size for file in kept) / _MIB
            memory_mib = _memory_mib(session)
            seen.append(Seen(at_s, read, held, batch, memory_mib, len(kept), kept_mib))
            _say(" | ".join(f"{value:,.0f}" for value in seen[-1]))
        if read >= records and held == 0:
            return seen
    message = f"it did not get through:\n{driver.log}"
    raise AssertionError(message)


def _page(port: int) -> Page | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return Page(answer.read().decode())
    except OSError:
        # It is not there yet: Java starts for a while.
        return None


def _memory_mib(session: int) -> float:
    """Of the driver, Java and Python's workers together."""
    memory = 0
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                memory += memory_bytes(int(folder.name))
    return memory / _MIB


def _write_down(options: argparse.Namespace, seen: Sequence[Seen]) -> None:
    table, chart = drawn(seen, options.records, options.rows, options.records_per_batch)
    _say(table)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "releasing.md").write_text(table)
        (options.results / "releasing.svg").write_text(chart)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
