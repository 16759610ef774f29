"""The whole way by headrace, as users start it: two sidecars, and the shipped job behind them.

The sidecars run first and the job then, each over all that there is. So what they take does not
depend on how they share the machine. In service they run at once: their memory is added up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench.spark import shipped
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import ROOT, Failed, Tree
from tests.bench.whole.measured import WARMING_SHARE, Track, Used
from tests.bench.whole.raw import GRACE_MS, INTERVAL_MS, RETENTION_MS
from tests.kafka.clients import Clients

_HEADRACE = [sys.executable, "-m", "headrace.services.cli"]
_SAMPLE_S = 0.2
_PATIENCE_S = 1_800.0
_END_WITHIN_S = 60.0
_BATCHES = 10
_WARMING_BATCHES = round(_BATCHES * WARMING_SHARE)
_SIDECARS = "sidecars"
_PARTS = {"java": "Spark's Java", "workers": "Spark's Python", "python": "Spark's driver"}
_PIPELINE = """\
pipeline: {name}
source: {{topic: {source}}}
operators:
  - deduplicate: {{by: key+id, id: header.id, interval: {interval_ms}ms}}
  - reorder: {{grace: {grace_ms}ms}}
sink: {{topic: {name}.cleaned}}
"""


def run(track: Track) -> Used:
    """Clean both topics, and join what came of it."""
    track.folder.mkdir(parents=True)
    cleaned, joined = _clean(track), _join(track)
    # Both are counted over as many orders.
    steady_s = joined.steady_orders * cleaned.warm_cpu_s_an_order
    return Used(
        cleaned.end.seconds + joined.seconds,
        {_SIDECARS: cleaned.end.cpu_s, **joined.cpu_seconds},
        joined.steady_orders,
        {_SIDECARS: steady_s, **joined.steady_cpu_seconds},
        {_SIDECARS: cleaned.memory_bytes_max, **joined.memory_bytes_max},
    )


class _Moment(NamedTuple):
    seconds: float
    cpu_s: float
    records: int


class _Cleaned(NamedTuple):
    end: _Moment
    warm_cpu_s_an_order: float
    memory_bytes_max: int


def _clean(track: Track) -> _Cleaned:
    pipelines = _pipelines(track)
    clients = Clients(track.servers)
    began_s = time.monotonic()
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(track, file)) for file in pipelines.values()]
        for process in processes:
            stack.callback(process.wait, _END_WITHIN_S)
            stack.callback(process.terminate)
        trees = [Tree(process.pid) for process in processes]

        def now() -> _Moment:
            ended = [process.args for process in processes if process.poll() is not None]
            if ended or time.monotonic() > began_s + _PATIENCE_S:
                message = f"a sidecar ended, or stands still; see {track.folder}: {ended}"
                raise Failed(message)
            cpu_s = sum(sum(tree.sample().values()) for tree in trees)
            seconds = time.monotonic() - began_s
            records = sum(sum(clients.committed_offsets(name).values()) for name in pipelines)
            return _Moment(seconds, cpu_s, records)

        warm = end = now()
        while end.records < track.raw.records:
            time.sleep(_SAMPLE_S)
            end = now()
            if end.records < track.raw.records * WARMING_SHARE:
                warm = end
    share = (end.records - warm.records) / track.raw.records
    an_order_s = (end.cpu_s - warm.cpu_s) / share / track.raw.size.facts
    return _Cleaned(end, an_order_s, sum(sum(tree.memory_max.values()) for tree in trees))


def _pipelines(track: Track) -> dict[str, Path]:
    """Write a pipeline's file for each topic; by its name, which is its group's too."""
    written = {}
    for kind, source in (("orders", track.raw.orders), ("prices", track.raw.prices)):
        name = f"{kind}-{track.name}"
        file = track.folder / f"{kind}.yaml"
        file.write_text(
            _PIPELINE.format(name=name, source=source, interval_ms=INTERVAL_MS, grace_ms=GRACE_MS),
            "utf-8",
        )
        written[name] = file
    return written


def _started(track: Track, file: Path) -> subprocess.Popen[bytes]:
    environment = {
        "HEADRACE_BOOTSTRAP_SERVERS": track.servers,
        "HEADRACE_STATE_FOLDER": str(file.with_suffix(".state")),
    }
    with file.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [*_HEADRACE, "run", str(file)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )


def _join(track: Track) -> Used:
    file, checkpoint = track.folder / "job.yaml", track.folder / "checkpoint"
    orders = track.raw.size.facts
    batch = max(orders // _BATCHES, 1)
    job = {
        "job": "orders-prices",
        "name": track.sink,
        "servers": track.servers,
        "checkpoint": str(checkpoint),
        "inputs": {
            kind: {"topic": f"{kind}-{track.name}.cleaned", "pipeline": f"{kind}-{track.name}"}
            for kind in ("prices", "orders")
        },
        "retention": f"{RETENTION_MS}ms",
        "records-per-batch": batch,
        "sink": {"kafka": {"topic": track.sink, "partitions": PARTITIONS}},
    }
    file.write_text(json.dumps(job), "utf-8")
    command = [*_HEADRACE, "spark", str(file), "--once"]
    tree, moments, seconds = shipped.watch_batches(command, checkpoint, track.folder / "log")
    start = next(each for each in moments if each.batch >= _WARMING_BATCHES - 1)
    used = tree.used()
    return Used(
        seconds,
        _by_part(used),
        orders - batch * (start.batch + 1),
        _by_part({name: cpu_s - start.cpu_seconds.get(name, 0.0) for name, cpu_s in used.items()}),
        {_PARTS[name]: size for name, size in tree.memory_max.items()},
    )


def _by_part(used: dict[str, float]) -> dict[str, float]:
    return {_PARTS[name]: cpu_s for name, cpu_s in used.items()}
