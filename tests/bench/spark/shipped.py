"""A shipped job as `headrace spark` starts it, by progress, in micro-batches.

The whole run counts, and apart from it the steady part behind the first micro-batches, for which
Java still compiles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds

from tests.bench.spark.cleaned import Filled, Made
from tests.bench.spark.jobs.orders_prices import digest_of
from tests.bench.spark.topics import PARTITIONS, RETENTION_MS, read_rows
from tests.bench.spark.watched import ROOT, Failed, Tree
from tests.kafka.clients import Clients

_TABLES = ("parquet", "delta")
SINKS = (*_TABLES, "kafka")
EACH = "kafka-each"
"""Into Kafka, with each update of a key where others write the last one of a micro-batch."""
_FACTS_A_BATCH = 100_000
_SAMPLE_S = 0.05
_PATIENCE_S = 1_800.0
_END_WITHIN_S = 60.0
_TAIL_LINES = 30


class Moment(NamedTuple):
    """The time used until a micro-batch was committed."""

    batch: int
    seconds: float
    cpu_seconds: dict[str, float]


class Shipped(NamedTuple):
    """The time and memory of a run of a job."""

    job: str
    who: str
    """A sink, a query, or a guarantee of Kafka Streams, which is measured alike."""
    facts: int
    versions: int
    rows: int
    """How many were written, tombstones and rows that later ones replace included."""
    seconds: float
    cpu_seconds: dict[str, float]
    """Of the whole run, by program."""
    steady_facts: int
    steady_seconds: float
    steady_cpu_seconds: dict[str, float]
    """The same of the second half of the micro-batches."""
    memory_bytes_max: dict[str, int]
    stayed: int = 0
    """How many rows that should have gone are there at the end."""
    round: int = 0

    @property
    def facts_per_cpu_second(self) -> float:
        """Facts of the whole run."""
        return self.facts / sum(self.cpu_seconds.values())

    @property
    def steady_facts_per_cpu_second(self) -> float:
        """Facts of the steady part."""
        return self.steady_facts / sum(self.steady_cpu_seconds.values())


class Cut(NamedTuple):
    """The offsets of a topic, and how many of them a micro-batch takes."""

    offsets: int
    of_a_batch: int

    def share_behind(self, batches: int) -> float:
        """Return what is left behind so many micro-batches."""
        return max(1 - self.of_a_batch * batches / self.offsets, 0.0)


def cut(servers: str, topic: str, batches: int) -> Cut:
    """Cut a topic into so many micro-batches."""
    # Markers of transactions have offsets as well. Spark shares an even part out among partitions
    # and rounds down, so a further micro-batch would take what is left, and cost as much as any.
    offsets = sum(Clients(servers).end_offsets(topic).values())
    return Cut(offsets, offsets * 101 // (100 * batches) + 2 * PARTITIONS)


def batches_of(facts: int) -> int:
    """Return how many micro-batches take so many facts; the second half of them is steady."""
    return max(2, facts // _FACTS_A_BATCH // 2 * 2)


def command_of(file: Path) -> list[str]:
    """Return how users run a job over all that there is."""
    return [sys.executable, "-m", "headrace.services.cli", "spark", str(file), "--once"]


def described(who: str, filled: Filled, servers: str, folder: Path) -> dict[str, object]:
    """A job's file, with nothing in it but what it must have."""
    name = topic_of(who, filled)
    sink = "kafka" if who == EACH else who
    out = {"topic": name} if sink == "kafka" else {"folder": str(folder / "out")}
    return {
        "job": filled.job,
        "name": name,
        "servers": servers,
        "checkpoint": str(folder / "checkpoint"),
        "inputs": {name: each._asdict() for name, each in filled.inputs.items()},
        "retention": f"{RETENTION_MS}ms",
        "sink": {sink: out},
        **({"updates": "each"} if who == EACH else {}),
    }


def topic_of(who: str, filled: Filled) -> str:
    """Return the topic of a job's rows, which is its name as well."""
    return f"{filled.job}-{who}-{filled.size.facts}-{filled.round}"


def run(who: str, filled: Filled, servers: str, folder: Path) -> Shipped:
    """Run the job over all that the topics hold; what it made must be right."""
    return run_described(who, described(who, filled, servers, folder), filled, servers, folder)


def run_described(
    who: str, job: Mapping[str, object], filled: Filled, servers: str, folder: Path
) -> Shipped:
    """Run a job's file in micro-batches; what it made must be right."""
    folder.mkdir(parents=True)
    file, checkpoint = folder / "job.yaml", folder / "checkpoint"
    # All topics are read in equally many micro-batches.
    batches = batches_of(filled.size.facts)
    cuts = [cut(servers, each.topic, batches) for each in filled.inputs.values()]
    largest = max(cuts, key=lambda cut: cut.offsets)
    file.write_text(json.dumps({**job, "records-per-batch": largest.of_a_batch}), "utf-8")
    watched = watch_batches(command_of(file), checkpoint, folder / "log")
    made = _made(who, filled, servers, folder)
    refuse_wrong("the job", made, filled)
    steady_facts = round(filled.size.facts * largest.share_behind(batches // 2))
    return _summary(who, filled, made, steady_facts, watched)


def refuse_wrong(who: str, made: Made, filled: Filled) -> None:
    """Stop if what somebody made is not right."""
    if made.digest != filled.wanted:
        message = f"{filled.job}: {who} made {made}, and right is {filled.wanted}"
        raise SystemExit(message)


def watch_batches(
    command: list[str],
    checkpoint: Path,
    log: Path,
    on_commit: Callable[[int], None] = lambda _batch: None,
) -> tuple[Tree, list[Moment], float]:
    """Run a command to its end; note what it had used whenever a micro-batch was committed."""
    moments: list[Moment] = []
    began_s = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        tree = Tree(process.pid)
        try:
            while process.poll() is None:
                if time.monotonic() > began_s + _PATIENCE_S:
                    raise Failed(_last_words(log))
                cpu, now_s = tree.sample(), time.monotonic() - began_s
                batch = last_commit(checkpoint)
                if batch is not None and (not moments or batch > moments[-1].batch):
                    moments.append(Moment(batch, now_s, cpu))
                    on_commit(batch)
                time.sleep(_SAMPLE_S)
        finally:
            process.terminate()
            process.wait(_END_WITHIN_S)
    if process.returncode != 0 or not moments:
        raise Failed(_last_words(log))
    return tree, moments, time.monotonic() - began_s


def last_commit(checkpoint: Path) -> int | None:
    """Return the last micro-batch that was committed, None if none was."""
    try:
        names = [each.name for each in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return None
    return max((int(name) for name in names if name.isdigit()), default=None)


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:])


def _made(who: str, filled: Filled, servers: str, folder: Path) -> Made:
    if who not in _TABLES:
        return filled.judge(read_rows(servers, topic_of(who, filled)))
    priced = digest_of(_priced(folder / "out"))
    return Made(priced, priced.rows)


def _priced(folder: Path) -> Iterator[tuple[bytes, str, int, int]]:
    names = ["key", "order_id", "quantity", "price_cents"]
    for batch in ds.dataset(folder, exclude_invalid_files=True).to_batches(columns=names):
        for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            yield row[0].encode(), *row[1:]


def _summary(
    who: str,
    filled: Filled,
    made: Made,
    steady_facts: int,
    watched: tuple[Tree, list[Moment], float],
) -> Shipped:
    tree, moments, seconds = watched
    batches = batches_of(filled.size.facts)
    (start,) = [each for each in moments if each.batch == batches // 2 - 1]
    (end,) = [each for each in moments if each.batch == batches - 1]
    steady = {
        name: cpu_s - start.cpu_seconds.get(name, 0.0) for name, cpu_s in end.cpu_seconds.items()
    }
    return Shipped(
        filled.job,
        who,
        *filled.size,
        made.rows,
        seconds,
        tree.used(),
        steady_facts,
        end.seconds - start.seconds,
        steady,
        dict(tree.memory_max),
        round=filled.round,
    )
