"""`python -m tests.bench.memory`: what a sidecar takes at most, beside what HEADRACE_MEMORY says.

It reorders a backlog with a grace of an hour, in many partitions: two hours of event time, then one
record a partition behind which all of them leave. Every record must be out in the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.contracts.record import Record
from headrace.contracts.time import parse_size_bytes
from headrace.services.broker.embedded import EmbeddedBroker
from tests.runtime.sidecar import Pipeline, record, wait_until

_HOURS_MS = 2 * 3_600_000
_BROKER_MIB = 512
_WITHIN_S = 1_800.0
_OPERATORS = ("reorder: {grace: 1h}", "deduplicate: {by: key, interval: 1h}")


def main() -> None:
    """Measure, a line for each size of values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", nargs="+", default=["512MiB"], help="HEADRACE_MEMORY")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--megabytes", type=int, default=400, help="of values in all")
    parser.add_argument("--records-max", type=int, default=400_000)
    options = parser.parse_args()
    print(
        "| HEADRACE_MEMORY | partitions | value | records | all out | peak RSS, MiB | of it | s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory(prefix="memory-", ignore_cleanup_errors=True) as temporary:
        broker = EmbeddedBroker(Path(temporary) / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            for memory in options.memory:
                for value_bytes in options.value_bytes:
                    count = min(options.records_max, options.megabytes * 10**6 // value_bytes)
                    _measure(
                        Pipeline(
                            broker.bootstrap_servers,
                            Path(temporary),
                            *_OPERATORS,
                            partitions=options.partitions,
                        ),
                        memory,
                        (options.partitions, value_bytes, count),
                    )
        finally:
            broker.stop()


def _measure(pipeline: Pipeline, memory: str, stream: tuple[int, int, int]) -> None:
    partitions, value_bytes, count = stream
    pipeline.produce(_records(partitions, value_bytes, count))
    began_s = time.monotonic()
    sidecar = pipeline.start(memory=memory, commit_interval="200ms", session_timeout="30s")
    try:
        wait_until(
            lambda: sum(pipeline.committed().values()) >= count + partitions,
            "the last commit",
            [sidecar],
            _WITHIN_S,
        )
        took_s = time.monotonic() - began_s
        peak_bytes = _peak_bytes(sidecar.pid)
    finally:
        pipeline.close()
    out = "yes" if len(pipeline.cleaned()) == count else "no"
    share = peak_bytes / parse_size_bytes(memory)
    print(
        f"| {memory} | {partitions} | {value_bytes:,} B | {count:,} | {out} |"
        f" {peak_bytes >> 20} | {share:.2f} | {took_s:.0f} |",
        flush=True,
    )


def _records(partitions: int, value_bytes: int, count: int) -> Iterator[Record]:
    """Each of its own key, in disorder within the grace; then what lets all of them leave."""
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    for number in range(count):
        at_ms = number * _HOURS_MS // count + (number * 7_919) % 600_000
        yield record(b"%d" % number, value[:value_bytes], at_ms, (), number % partitions)
    for partition in range(partitions):
        yield record(b"last", b"", 2 * _HOURS_MS, (), partition)


def _peak_bytes(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
