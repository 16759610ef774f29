"""The whole way by Flink SQL and by Kafka Streams, each one process of Java."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.bench.race import environments
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import running, watch
from tests.bench.whole.measured import WARMING_SHARE, Track, Used
from tests.bench.whole.raw import INTERVAL_MS, RETENTION_MS, Raw
from tests.kafka.clients import FOREVER, Clients

_THREADS = 2
_COMMIT_INTERVAL_MS = 5_000
"""Over what the topics hold, a peer commits as often as a micro-batch of the job does."""


class _Peer(NamedTuple):
    """The command that runs a peer, and the variables that only this one reads."""

    command: list[str]
    told: dict[str, str]


def flink(track: Track, raw: Raw) -> Used:
    """Run Flink SQL until its job ends, since its sources are bounded."""
    return _run(track, raw, _flink("ends"), ends=True)


def streams(track: Track, raw: Raw) -> Used:
    """Run Kafka Streams until it has committed everything."""
    return _run(track, raw, _streams(), ends=False)


def serve_flink(
    track: Track, commit_interval_ms: int
) -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
    """Run Flink SQL until the end of the block, since its sources go on."""
    return _serving(track, _flink("goes on"), commit_interval_ms)


def serve_streams(
    track: Track, commit_interval_ms: int
) -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
    """Run Kafka Streams until the end of the block."""
    return _serving(track, _streams(), commit_interval_ms)


def _flink(input_is: str) -> _Peer:
    jars = ";".join(jar.as_uri() for jar in sorted(environments.flink_jars().glob("*.jar")))
    told = {"JARS": jars, "PARALLELISM": "1", "INPUT": input_is}
    return _Peer([str(environments.flink_python()), "-m", "tests.bench.peers.flink"], told)


def _streams() -> _Peer:
    told = {
        "OPERATOR": "priced-orders",
        "GUARANTEE": "exactly_once_v2",
        "THREADS": str(_THREADS),
        "CACHE": "as it comes",
    }
    return _Peer(environments.streams_command("G1"), told)


@contextmanager
def _serving(
    track: Track, peer: _Peer, commit_interval_ms: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = _environment(track, peer, commit_interval_ms)
    with running(peer.command, track.folder.with_suffix(".log"), environment) as process:
        yield [process]


def _environment(track: Track, peer: _Peer, commit_interval_ms: int) -> dict[str, str]:
    """Make a peer's folder, and return the variables that it reads."""
    track.folder.mkdir(parents=True)
    told = {
        "GROUP": _group(track),
        "SOURCE": track.topics.orders,
        "TABLE": track.topics.prices,
        "SINK": track.sink,
        "BOOTSTRAP_SERVERS": track.servers,
        "STATE_FOLDER": str(track.folder),
        "COMMIT_INTERVAL_MS": str(commit_interval_ms),
        "INTERVAL_MS": str(INTERVAL_MS),
        "GRACE_MS": str(track.grace_ms),
        "RETENTION_MS": str(RETENTION_MS),
        **peer.told,
    }
    return {f"RACE_{name}": value for name, value in told.items()}


def _group(track: Track) -> str:
    return f"{track.name}-group"


def _run(track: Track, raw: Raw, peer: _Peer, *, ends: bool) -> Used:
    clients = Clients(track.servers)
    clients.make_topic(track.sink, PARTITIONS, FOREVER)
    goal, rows = raw.records, raw.wanted.count
    warm_share = 0.0

    def read_records() -> int:
        # A group may have topics of its own, such as for repartitioning.
        offsets = clients.committed_offsets(_group(track)).items()
        return sum(offset for (topic, _), offset in offsets if topic in track.topics)

    def is_warm() -> bool:
        # Records that were read may still wait inside, so rows that were written count as much.
        # Rows are seen at once, and of the records that were read only the committed ones.
        nonlocal warm_share
        written = sum(clients.end_offsets(track.sink).values())
        warm_share = min((read_records() / goal + written / rows) / 2, 1.0)
        return warm_share >= WARMING_SHARE

    watched = watch(
        peer.command,
        _environment(track, peer, _COMMIT_INTERVAL_MS),
        track.folder.with_suffix(".log"),
        None if ends else lambda: read_records() >= goal,
        is_warm,
    )
    names = {"java": "Java", "python": "Python", "workers": "Python"}
    return Used(
        watched.seconds,
        _named(names, watched.before, watched.cpu_seconds),
        round(raw.size.facts * (1 - warm_share)),
        _named(names, watched.warm_cpu_seconds),
        {names[program]: size for program, size in watched.memory_bytes_max.items()},
    )


def _named(names: dict[str, str], *used: dict[str, float]) -> dict[str, float]:
    """Add up CPU seconds by part."""
    found: dict[str, float] = {}
    for each in used:
        for program, cpu_s in each.items():
            found[names[program]] = found.get(names[program], 0.0) + cpu_s
    return found
