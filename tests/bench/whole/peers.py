"""The whole way by Flink SQL and by Kafka Streams, each one process of Java."""

from __future__ import annotations

from tests.bench.race import environments
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import watch
from tests.bench.whole.measured import COMMIT_INTERVAL_MS, WARMING_SHARE, Track, Used
from tests.bench.whole.raw import GRACE_MS, INTERVAL_MS, RETENTION_MS
from tests.kafka.clients import FOREVER, Clients

_THREADS = 2


def flink(track: Track) -> Used:
    """Run Flink SQL until its job ends, since its sources are bounded."""
    jars = ";".join(jar.as_uri() for jar in sorted(environments.flink_jars().glob("*.jar")))
    told = {"JARS": jars, "PARALLELISM": "1"}
    python = str(environments.flink_python())
    return _run(track, [python, "-m", "tests.bench.peers.flink"], told, ends=True)


def streams(track: Track) -> Used:
    """Run Kafka Streams until it has committed everything."""
    told = {
        "OPERATOR": "priced-orders",
        "GUARANTEE": "exactly_once_v2",
        "THREADS": str(_THREADS),
        "CACHE": "as it comes",
    }
    return _run(track, environments.streams_command("G1"), told, ends=False)


def _run(track: Track, command: list[str], more: dict[str, str], *, ends: bool) -> Used:
    track.folder.mkdir(parents=True)
    clients = Clients(track.servers)
    clients.make_topic(track.sink, PARTITIONS, FOREVER)
    group = f"{track.name}-group"
    told = {
        "GROUP": group,
        "SOURCE": track.raw.orders,
        "TABLE": track.raw.prices,
        "SINK": track.sink,
        "BOOTSTRAP_SERVERS": track.servers,
        "STATE_FOLDER": str(track.folder),
        "COMMIT_INTERVAL_MS": str(COMMIT_INTERVAL_MS),
        "INTERVAL_MS": str(INTERVAL_MS),
        "GRACE_MS": str(GRACE_MS),
        "RETENTION_MS": str(RETENTION_MS),
        **more,
    }
    goal, rows = track.raw.records, track.raw.wanted.count
    warm_share = 0.0

    def read_records() -> int:
        # A group may have topics of its own, such as for repartitioning.
        sources = {track.raw.orders, track.raw.prices}
        offsets = clients.committed_offsets(group).items()
        return sum(offset for (topic, _), offset in offsets if topic in sources)

    def is_warm() -> bool:
        # Records that were read may still wait inside, so rows that were written count as much.
        # Rows are seen at once, and of the records that were read only the committed ones.
        nonlocal warm_share
        written = sum(clients.end_offsets(track.sink).values())
        warm_share = min((read_records() / goal + written / rows) / 2, 1.0)
        return warm_share >= WARMING_SHARE

    watched = watch(
        command,
        {f"RACE_{name}": value for name, value in told.items()},
        track.folder.with_suffix(".log"),
        None if ends else lambda: read_records() >= goal,
        is_warm,
    )
    names = {"java": "Java", "python": "Python", "workers": "Python"}
    return Used(
        watched.seconds,
        _named(names, watched.before, watched.cpu_seconds),
        round(track.raw.size.facts * (1 - warm_share)),
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
