"""`python -m tests.bench.many`: one instance of 1,000 partitions starts, a second joins, one dies.

Each partition has state of its own. The table says how long each step took until every partition
ran again, and what each instance took by then: memory, descriptors, CPU time since the step began.
The second instance has no copy of any state, so it reads all that it is given from changelogs.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.processes import descriptors_of, memory_bytes, stat_of
from tests.kafka.clients import FOREVER, Clients
from tests.kill.workers import Worker

_TOPIC = "raw"
_PIPELINE = """\
pipeline: many
source: {topic: raw}
operators:
  - deduplicate: {by: key, interval: 1h}
sink: {topic: cleaned}
"""
_BROKER_MIB = 1024
_BROKER = {"log.index.size.max.bytes": "65536"}
"""By itself a broker maps 20 MiB of indexes for each of three thousand partitions."""
_LOOK_S = 0.2
_START_MS = 1_767_225_600_000


class Step(NamedTuple):
    """One line of the table."""

    what: str
    took_s: float
    instance: str
    partitions: int
    memory_mib: int
    descriptors: int
    cpu_s: float


def main() -> None:
    """Run the three steps, a line for each instance behind each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=100, help="of each partition")
    parser.add_argument("--memory", default="4GiB", help="HEADRACE_MEMORY")
    parser.add_argument("--results", type=Path, help="a folder for many.md")
    options = parser.parse_args()
    # A broker that has just made a thousand partitions answers for some that it does not lead yet.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    size = f"{options.partitions:,} partitions with {options.keys} keys each"
    lines = [
        f"{size}, HEADRACE_MEMORY={options.memory}; `python -m tests.bench.many`",
        "",
        "| step | s | instance | partitions | MiB | descriptors | CPU-s |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    print("\n".join(lines), flush=True)
    with TemporaryDirectory(prefix="many-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(
            folder / "broker", heap_mib=_BROKER_MIB, java_options=(), properties=_BROKER
        )
        broker.start()
        try:
            for step in _steps(folder, broker.bootstrap_servers, options):
                line = (
                    f"| {step.what} | {step.took_s:.1f} | {step.instance} | {step.partitions:,}"
                    f" | {step.memory_mib:,} | {step.descriptors:,} | {step.cpu_s:.1f} |"
                )
                print(line, flush=True)
                lines.append(line)
        finally:
            broker.stop()
    if options.results is not None:
        (options.results / "many.md").write_text("\n".join([*lines, ""]), "utf-8")


def _steps(folder: Path, servers: str, options: argparse.Namespace) -> Iterator[Step]:
    clients = Clients(servers)
    clients.make_topic(_TOPIC, options.partitions, FOREVER)
    clients.produce(_TOPIC, _records(options.partitions, options.keys))
    file = folder / "many.yaml"
    file.write_text(_PIPELINE, "utf-8")
    settings = {"HEADRACE_BOOTSTRAP_SERVERS": servers, "HEADRACE_MEMORY": options.memory}
    settings |= {"HEADRACE_LOG_FORMAT": "json"}
    first, second = (Worker(name, folder, file, settings) for name in ("first", "second"))
    places = {f"{_TOPIC}/{number}" for number in range(options.partitions)}
    all_read = options.partitions * options.keys
    try:
        first.start()
        began_s = _until(lambda: _read(clients) >= all_read, [first])
        yield _step("the first starts, and reads all", began_s, first)
        began, cpu_s = time.monotonic(), _cpu_s(first)
        second.start()
        _until(lambda: _shared(first, second, places), [first, second])
        yield _step("the second joins", time.monotonic() - began, first, cpu_s)
        yield _step("", time.monotonic() - began, second)
        began, cpu_s = time.monotonic(), _cpu_s(second)
        first.kill()
        _until(lambda: second.running() >= places, [second])
        yield _step("the first is killed", time.monotonic() - began, second, cpu_s)
    finally:
        for worker in (first, second):
            worker.kill()


def _records(partitions: int, keys: int) -> Iterator[Record]:
    for partition in range(partitions):
        for number in range(keys):
            key = b"%d-%d" % (partition, number)
            yield Record(key, b"x" * 100, _START_MS + number, (), _TOPIC, partition, None)


def _read(clients: Clients) -> int:
    found = clients.committed_offsets("many")
    return sum(offset for (topic, _), offset in found.items() if topic == _TOPIC)


def _shared(first: Worker, second: Worker, places: set[str]) -> bool:
    theirs = second.running()
    return len(theirs) == len(places) // 2 and first.running() | theirs == places


def _until(is_so: Callable[[], bool], workers: list[Worker]) -> float:
    """Wait for it, and return how long it took; an instance that ends is a failure."""
    began_s = time.monotonic()
    while not is_so():
        for worker in workers:
            worker.look()
            assert worker.pid is not None, worker.last_line()
        time.sleep(_LOOK_S)
    return time.monotonic() - began_s


def _cpu_s(worker: Worker) -> float:
    assert worker.pid is not None
    return stat_of(worker.pid).cpu_seconds


def _step(what: str, took_s: float, worker: Worker, cpu_before_s: float = 0.0) -> Step:
    pid = worker.pid
    assert pid is not None
    memory_mib = memory_bytes(pid) >> 20
    cpu_s = _cpu_s(worker) - cpu_before_s
    running = len(worker.running())
    return Step(what, took_s, worker.name, running, memory_mib, descriptors_of(pid), cpu_s)


if __name__ == "__main__":
    main()
