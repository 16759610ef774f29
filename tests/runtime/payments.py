"""Three hours of payments through a repartition, at any size: `python -m tests.runtime.payments`.

Each case is one pipeline, one way to read and one number of instances: the payments wait in the
topic when the first instance starts (backlog), or are written while all run (live). Where there are
several instances, one is killed half-way. The right result is known: no payment is lost or comes
twice, none is late.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Thread
from typing import NamedTuple

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from tests.runtime.expected import by_partition
from tests.runtime.sidecar import SHORT_SESSION, MakePipeline, Pipeline, making_pipelines, record

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
DEDUPLICATE = "deduplicate: {by: id, id: header.id, interval: 10m}"
REORDER = "reorder: {grace: 2m, late: topic}"
PIPELINES = {"by id": (DEDUPLICATE,), "by id, reorder": (DEDUPLICATE, REORDER)}
_NULL_KEYS = 1 / 10
_LIVE_PARTS = 100
_WITHIN_S = 1_800.0
_BROKER_MIB = 1_024


def payments(
    count: int, partitions: int, seed: int, *, twins: bool = True, null_keys: float = _NULL_KEYS
) -> list[Record]:
    """Three hours of payments, at most 90 s behind their own partition; 7 % of them sent twice.

    The second is at most 60 s apart, in any partition. Each partition ends with one of much later.
    """
    luck = Random(seed)
    made: list[tuple[int, Record]] = []
    for number in range(count):
        at_ms = START_MS + number * 3 * HOUR_MS // count
        key = None if luck.random() < null_keys else b"k%d" % luck.randrange(50)
        value, headers = b"%d" % number, (("id", b"%d" % number),)
        made.append((at_ms, record(key, value, at_ms, headers)))
        if twins and luck.random() < 7 / 100:
            again_ms = at_ms + luck.randrange(60_000)
            made.append((again_ms, record(key, value, again_ms, headers)))
    # A payment that comes later by up to that much stands that much behind in its partition.
    made.sort(key=lambda one: one[0] + luck.randrange(90_000))
    spread = [one._replace(partition=luck.randrange(partitions)) for _, one in made]
    ends = [
        record(b"end", b"%d-%d" % (number, far), far, (("id", b"%d-%d" % (number, far)),), number)
        for number in range(partitions)
        for far in (START_MS + 4 * HOUR_MS, START_MS + 5 * HOUR_MS)
    ]
    return spread + ends


class Case(NamedTuple):
    """One way of all."""

    pipeline: str
    is_live: bool
    instances: int
    null_keys: float = _NULL_KEYS


class Outcome(NamedTuple):
    """The counts of a run; all but the first and the last should be zero."""

    cleaned: int
    lost: int
    doubled: int
    late: int
    dead: int
    out_of_order: int
    """Those that stand behind a later one of their partition, where there is an order."""
    took_s: float

    @property
    def is_right(self) -> bool:
        """Whether it is what should be."""
        return not any(self[1:-1])


def run(make_pipeline: MakePipeline, case: Case, raw: Sequence[Record], partitions: int) -> Outcome:
    """Lead the payments through, and count."""
    pipeline = make_pipeline(*PIPELINES[case.pipeline], partitions=partitions)
    wanted = {one.value for one in raw if one.key != b"end"}
    began_at_s = time.monotonic()
    if not case.is_live:
        pipeline.produce(raw)
    for number in range(case.instances):
        pipeline.start(f"{number}", **SHORT_SESSION)
    writing = Thread(target=partial(_write, pipeline, raw if case.is_live else ()))
    writing.start()
    if case.instances > 1:
        _wait_for(pipeline, len(wanted) // 2)
        pipeline.sidecars.pop(0).kill()
    writing.join()
    _wait_for(pipeline, len(wanted))
    pipeline.wait_for_cleaned(len(wanted), _WITHIN_S)
    pipeline.wait_until_done(_WITHIN_S)
    cleaned = [one for one in pipeline.cleaned() if one.value in wanted]
    counts = Counter(one.value for one in cleaned)
    asides = {name: len(pipeline.beside(name)) for name in _asides(pipeline)}
    for sidecar in pipeline.sidecars:
        assert sidecar.stop() == 0, sidecar.log
    return Outcome(
        cleaned=len(cleaned),
        lost=len(wanted) - len(counts),
        doubled=len(cleaned) - len(counts),
        late=asides.get("late", 0),
        dead=asides["dead"],
        out_of_order=_out_of_order(cleaned) if pipeline.spec.sends_late() else 0,
        took_s=time.monotonic() - began_at_s,
    )


def _write(pipeline: Pipeline, raw: Sequence[Record]) -> None:
    at_once = max(1, len(raw) // _LIVE_PARTS)
    for first in range(0, len(raw), at_once):
        pipeline.produce(raw[first : first + at_once])


def _out_of_order(cleaned: Sequence[Record]) -> int:
    return sum(
        later.timestamp_ms < one.timestamp_ms
        for of_place in by_partition(cleaned).values()
        for one, later in pairwise(of_place)
    )


def _wait_for(pipeline: Pipeline, offsets: int) -> None:
    """Wait until the cleaned topic has about so many records: to read it would cost too much."""

    def are_there() -> bool:
        clients = pipeline.clients
        return (
            pipeline.sink in clients.topics()
            and sum(clients.end_offsets(pipeline.sink).values()) >= offsets
        )

    pipeline.wait_until(are_there, f"{offsets} cleaned records", _WITHIN_S)


def _asides(pipeline: Pipeline) -> list[str]:
    return ["dead", "late"] if pipeline.spec.sends_late() else ["dead"]


def main() -> int:
    """Every case, a line each; 1 if one is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--null-keys", type=float, nargs="+", default=[_NULL_KEYS, 1.0])
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()
    # Clients that ask before all brokers know a new topic have much to say, and no news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    cases = [
        Case(name, is_live, instances, null_keys)
        for null_keys in options.null_keys
        for name in options.pipelines
        for is_live in (False, True)
        for instances in options.instances
    ]
    right = True
    titles = ["pipeline", "null keys", "read", "instances", *Outcome._fields[:-1], "s"]
    _say(f"| {' | '.join(titles)} |")
    _say(f"|{'---|' * len(titles)}")
    with TemporaryDirectory(prefix="payments-", ignore_cleanup_errors=True) as temporary:
        broker = EmbeddedBroker(Path(temporary) / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            for case in cases:
                right &= _run_alone(case, options, broker.bootstrap_servers, Path(temporary))
        finally:
            broker.stop()
    return int(not right)


def _run_alone(case: Case, options: argparse.Namespace, servers: str, folder: Path) -> bool:
    raw = payments(options.payments, options.partitions, options.seed, null_keys=case.null_keys)
    with making_pipelines(lambda: servers, folder) as make:
        found = run(make, case, raw, options.partitions)
    read = "live" if case.is_live else "backlog"
    instances = f"{case.instances}, one killed" if case.instances > 1 else f"{case.instances}"
    *counts, took_s = found
    cells = [case.pipeline, f"{case.null_keys:.0%}", read, instances, *counts, round(took_s)]
    _say(f"| {' | '.join(map(str, cells))} |")
    return found.is_right


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
