"""`python -m tests.bench.partitions`: a steady load over few and over many partitions.

So many records a second in all, spread evenly; one instance removes duplicates, exactly once. Each
contestant runs as its users start it, on the same broker, with a reader that sees what is
committed. The figures are the CPU time of worker and broker and the time from a record's writing to
its being readable; all records must come out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.partitions.load import Figures, Heat, run
from tests.bench.race.contestants import CONTESTANTS, Job

_BROKER_MIB = 512
_PARTITIONS = (4, 64, 256)
_PROPERTIES = {"log.index.size.max.bytes": "65536"}
"""By itself a broker makes each index 10 MiB, all zeros, and maps it. The first write to one reads
zeros ahead, as many as the disk is told to: 8 MiB on some machines, for each partition at once."""


class Options(NamedTuple):
    """The contestants and the length of a run."""

    partitions: list[int]
    peers: list[str]
    records_per_second: int
    seconds: float
    warm_up_s: float
    rounds: int
    results: Path | None


def main() -> None:
    """Run every contestant on every number of partitions, in turn."""
    options = _options()
    lines = [*_head()]
    for line in lines:
        print(line)
    # A contestant that was stopped may still be deleting files of its own.
    with TemporaryDirectory(prefix="partitions-", ignore_cleanup_errors=True) as temporary:
        for number, (count, peer) in enumerate(_heats(options)):
            line = _line(
                count, peer, _on_own_broker(options, count, peer, Path(temporary, f"{number}"))
            )
            print(line, flush=True)
            lines.append(line)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "partitions.md").write_text("\n".join([*lines, ""]), "utf-8")


def _heats(options: Options) -> Iterator[tuple[int, str]]:
    for count in options.partitions:
        for _ in range(options.rounds):
            for peer in options.peers:
                yield count, peer


def _on_own_broker(options: Options, partitions: int, peer: str, folder: Path) -> Figures:
    """On a new broker, so that nobody pays for topics of another one."""
    broker = EmbeddedBroker(
        folder / "broker", heap_mib=_BROKER_MIB, java_options=(), properties=_PROPERTIES
    )
    broker.start()
    try:
        job = Job(
            operator="deduplicate",
            guarantee="exactly-once",
            group="steady",
            source="steady-source",
            sink="steady-sink",
            table="steady-table",
            bootstrap_servers=broker.bootstrap_servers,
            folder=folder,
            commit_interval_ms=200,
        )
        heat = Heat(
            partitions, options.records_per_second, options.warm_up_s, options.seconds, folder
        )
        CONTESTANTS[peer].prepare()
        return asyncio.run(run(CONTESTANTS[peer], job, heat))
    finally:
        broker.stop()


def _head() -> Iterator[str]:
    yield "| partitions | | worker, cores | broker, cores | p50 | p99 | out | descriptors |"
    yield "|---|---|---|---|---|---|---|---|"


def _line(partitions: int, peer: str, figures: Figures) -> str:
    out = "all" if figures.read == figures.written else f"{figures.read} of {figures.written}"
    return (
        f"| {partitions} | {CONTESTANTS[peer].title} | {figures.worker_cores:.2f}"
        f" | {figures.broker_cores:.2f} | {figures.median_ms:,.0f} ms | {figures.p99_ms:,.0f} ms"
        f" | {out} | {figures.descriptors} |"
    )


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=_PARTITIONS)
    parser.add_argument("--peers", nargs="+", choices=CONTESTANTS, default=["headrace", "streams"])
    parser.add_argument("--records-per-second", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up-s", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="a folder for partitions.md")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
