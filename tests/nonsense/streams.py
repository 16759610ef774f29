"""Streams of nonsense through every pipeline, three times each: cut and stored otherwise."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.nonsense.judge import Outcome, differences, run
from tests.nonsense.records import stream
from tests.nonsense.shapes import shapes

SLICE = 500
"""As many records as the runtime gives to the operators at once."""
_FEW = (1, 1, 2, 7, 100)
_STREAM_RECORDS = 2_000
"""As long is one stream: behind a record of the end of time all others are late."""
_MEMORY = RocksMemory(32 << 20)


class Judged(NamedTuple):
    """One pipeline, and what was found."""

    name: str
    records: int
    dead: Counter[str]
    redone: int
    seconds: float
    complaints: list[str]


def judged(seed: int, records_each: int) -> Iterator[Judged]:
    """Every pipeline with so many records."""
    for name, spec in shapes().items():
        rng = Random(f"{seed} {name}")
        begun = time.monotonic()
        dead: Counter[str] = Counter()
        complaints: list[str] = []
        redone = 0
        for length in _lengths(records_each):
            records = list(stream(rng, length))
            outcome, found = _one_stream(spec, records, rng)
            dead += Counter({_reason(what): count for what, count in outcome.dead.items()})
            redone += outcome.redone
            complaints += found
        yield Judged(name, records_each, dead, redone, time.monotonic() - begun, complaints)


def report(seeds: Sequence[int], count: int) -> str:
    """So many records, shared by all pipelines and seeds: a table, and every complaint."""
    each = -(-count // (len(shapes()) * len(seeds)))
    rows = [
        reduce(_together, of_one)
        for of_one in zip(*(judged(one, each) for one in seeds), strict=True)
    ]
    complaints = [f"{row.name}: {said}" for row in rows for said in row.complaints]
    total = sum(row.records for row in rows)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    how = (
        "Each went through its pipeline three times: in slices as the runtime has them, in other"
        f" cuts, and over RocksDB. At most {peak_mib} MiB were in use."
    )
    lines = [
        f"# {total} records, seeds {', '.join(map(str, seeds))}: {len(complaints)} complaints",
        "",
        how,
        "",
        "| pipeline | records | dead | batches done again | seconds |",
        "|---|---|---|---|---|",
        *map(_line, rows),
    ]
    return "\n".join([*lines, *complaints])


def _together(one: Judged, other: Judged) -> Judged:
    """One pipeline with two seeds."""
    return Judged(
        one.name,
        one.records + other.records,
        one.dead + other.dead,
        one.redone + other.redone,
        one.seconds + other.seconds,
        one.complaints + other.complaints,
    )


def _one_stream(
    spec: PipelineSpec, records: list[Record], rng: Random
) -> tuple[Outcome, list[str]]:
    whole = run(spec, records, SLICE)
    otherwise = run(spec, records, rng.choice(_FEW))
    with TemporaryDirectory() as folder:
        store = RocksStore(Path(folder) / "state", _MEMORY)
        on_disk = run(spec, records, SLICE, store)
        store.close()
    found = [*whole.complaints, *otherwise.complaints, *on_disk.complaints]
    found += differences(whole, otherwise)
    found += (f"over RocksDB {said}" for said in differences(whole, on_disk))
    if on_disk.rows != whole.rows:
        found.append("other rows stand in RocksDB than in memory")
    return whole, found


def _lengths(records: int) -> Iterator[int]:
    while records > 0:
        yield min(records, _STREAM_RECORDS)
        records -= _STREAM_RECORDS


def _line(row: Judged) -> str:
    dead = ", ".join(f"{count} {reason}" for reason, count in sorted(row.dead.items()))
    return f"| {row.name} | {row.records} | {dead} | {row.redone} | {row.seconds:.0f} |"


def _reason(what: str) -> str:
    return what.rpartition(" ")[2]
