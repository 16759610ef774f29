"""The whole way by headrace, as users start it: two sidecars, and the shipped job behind them.

Over what the topics hold, the sidecars run first and the job then. So what they take does not
depend on how they share the machine. In service they run at once: their memory is added up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

from headrace.contracts.topics import progress_topic
from tests.bench.spark import shipped
from tests.bench.spark.cleaned import Cleaned
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import Failed, Tree, running
from tests.bench.whole.measured import WARMING_SHARE, Track, Used
from tests.bench.whole.raw import INTERVAL_MS, RETENTION_MS, Raw
from tests.kafka.clients import Clients

_HEADRACE = [sys.executable, "-m", "headrace.services.cli"]
_SAMPLE_S = 0.2
_PATIENCE_S = 1_800.0
_BATCHES, _WARMING_BATCHES = 10, 4
_CHECKPOINT = "checkpoint"
_SIDECARS = "sidecars"
_PARTS = {"java": "Spark's Java", "workers": "Spark's Python", "python": "Spark's driver"}
_PIPELINE = """\
pipeline: {name}
source: {{topic: {source}}}
operators:
  - deduplicate: {{by: key+id, id: header.id, interval: {interval_ms}ms}}
  - reorder: {{grace: {grace_ms}ms}}
sink: {{topic: {cleaned}}}
"""


def run(track: Track, raw: Raw) -> Used:
    """Clean both topics, and join what came of it."""
    track.folder.mkdir(parents=True)
    cleaned, joined = _clean(track, raw), _join(track, raw.size.facts)
    # Both are counted over as many orders.
    steady_s = joined.steady_orders * cleaned.warm_cpu_s_an_order
    return Used(
        cleaned.end.seconds + joined.seconds,
        {_SIDECARS: cleaned.end.cpu_s, **joined.cpu_seconds},
        joined.steady_orders,
        {_SIDECARS: steady_s, **joined.steady_cpu_seconds},
        {_SIDECARS: cleaned.memory_bytes_max, **joined.memory_bytes_max},
    )


@contextmanager
def serve(track: Track, commit_interval_ms: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run both sidecars and the job at once, until the end of the block."""
    track.folder.mkdir(parents=True)
    clients = Clients(track.servers)
    with ExitStack() as stack:
        processes = [stack.enter_context(sidecar) for sidecar in _sidecars(track)]
        # A job does not start before the topics are there that it reads.
        wanted = {topic for each in _inputs(track).values() for topic in _topics_of(each)}
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while not wanted <= clients.topics():
            _check(processes, give_up_at_s)
            time.sleep(_SAMPLE_S)
        command = _job(track, {"every": f"{commit_interval_ms}ms"})
        processes.append(stack.enter_context(running(command, track.folder / "log")))
        yield processes


class _Moment(NamedTuple):
    seconds: float
    cpu_s: float
    records: int


class _Clean(NamedTuple):
    end: _Moment
    warm_cpu_s_an_order: float
    memory_bytes_max: int


def _clean(track: Track, raw: Raw) -> _Clean:
    clients = Clients(track.servers)
    groups = [each.pipeline for each in _inputs(track).values()]
    began_s = time.monotonic()
    with ExitStack() as stack:
        processes = [stack.enter_context(sidecar) for sidecar in _sidecars(track)]
        trees = [Tree(process.pid) for process in processes]

        def now() -> _Moment:
            _check(processes, began_s + _PATIENCE_S)
            cpu_s = sum(sum(tree.sample().values()) for tree in trees)
            seconds = time.monotonic() - began_s
            records = sum(sum(clients.committed_offsets(group).values()) for group in groups)
            return _Moment(seconds, cpu_s, records)

        warm = end = now()
        while end.records < raw.records:
            time.sleep(_SAMPLE_S)
            end = now()
            if end.records < raw.records * WARMING_SHARE:
                warm = end
    share = (end.records - warm.records) / raw.records
    an_order_s = (end.cpu_s - warm.cpu_s) / share / raw.size.facts
    return _Clean(end, an_order_s, sum(sum(tree.memory_max.values()) for tree in trees))


def _inputs(track: Track) -> dict[str, Cleaned]:
    """Name the job's inputs; a pipeline's name is its group's too."""
    names = {kind: f"{kind}-{track.name}" for kind in track.topics._fields}
    return {kind: Cleaned(name, f"{name}.cleaned") for kind, name in names.items()}


def _topics_of(cleaned: Cleaned) -> tuple[str, str]:
    return cleaned.topic, progress_topic(cleaned.topic).name


def _check(processes: list[subprocess.Popen[bytes]], give_up_at_s: float) -> None:
    ended = [process.args for process in processes if process.poll() is not None]
    if ended or time.monotonic() > give_up_at_s:
        message = f"a sidecar ended, or stands still: {ended}"
        raise Failed(message)


def _sidecars(track: Track) -> Iterator[AbstractContextManager[subprocess.Popen[bytes]]]:
    """Write a pipeline's file for each topic, and start it."""
    for (kind, cleaned), source in zip(_inputs(track).items(), track.topics, strict=True):
        file = track.folder / f"{kind}.yaml"
        text = _PIPELINE.format(
            name=cleaned.pipeline,
            source=source,
            cleaned=cleaned.topic,
            interval_ms=INTERVAL_MS,
            grace_ms=track.grace_ms,
        )
        file.write_text(text, "utf-8")
        environment = {
            "HEADRACE_BOOTSTRAP_SERVERS": track.servers,
            "HEADRACE_STATE_FOLDER": str(file.with_suffix(".state")),
        }
        yield running([*_HEADRACE, "run", str(file)], file.with_suffix(".log"), environment)


def _join(track: Track, orders: int) -> Used:
    pieces = shipped.cut(track.servers, _inputs(track)["orders"].topic, _BATCHES)
    command = [*_job(track, {"records-per-batch": pieces.of_a_batch}), "--once"]
    tree, moments, seconds = shipped.watch_batches(
        command, track.folder / _CHECKPOINT, track.folder / "log"
    )
    start = next(each for each in moments if each.batch >= _WARMING_BATCHES - 1)
    used = tree.used()
    return Used(
        seconds,
        _by_part(used),
        round(orders * pieces.share_behind(start.batch + 1)),
        _by_part({name: cpu_s - start.cpu_seconds.get(name, 0.0) for name, cpu_s in used.items()}),
        {_PARTS[name]: size for name, size in tree.memory_max.items()},
    )


def _job(track: Track, more: Mapping[str, object]) -> list[str]:
    """Write the job's file, and return the command that runs it."""
    file = track.folder / "job.yaml"
    job = {
        "job": "orders-prices",
        "name": track.sink,
        "servers": track.servers,
        "checkpoint": str(track.folder / _CHECKPOINT),
        "inputs": {kind: cleaned._asdict() for kind, cleaned in _inputs(track).items()},
        "retention": f"{RETENTION_MS}ms",
        "sink": {"kafka": {"topic": track.sink, "partitions": PARTITIONS}},
        **more,
    }
    file.write_text(json.dumps(job), "utf-8")
    return [*_HEADRACE, "spark", str(file)]


def _by_part(used: dict[str, float]) -> dict[str, float]:
    return {_PARTS[name]: cpu_s for name, cpu_s in used.items()}
