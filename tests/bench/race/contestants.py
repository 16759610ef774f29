"""The contestants: their operators, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tests.bench.race import environments, source
from tests.bench.race.worker import Command

Guarantee = Literal["exactly-once", "at-least-once"]
GUARANTEES: tuple[Guarantee, ...] = ("exactly-once", "at-least-once")
OPERATORS = ("deduplicate", "reorder", "suppress", "windowed-count")
ORDERED = frozenset({"deduplicate", "reorder", "copy"})
"""Operators whose output has one right order in each partition."""


class Job(NamedTuple):
    """One run: what a contestant has to do, and where."""

    operator: str
    guarantee: Guarantee
    group: str
    source: str
    sink: str
    table: str
    """An empty topic, for who needs one."""
    bootstrap_servers: str
    folder: Path
    commit_interval_ms: int

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One who takes part."""

    name: str
    title: str
    operators: frozenset[str]
    command: Callable[[Job], Command]
    prepare: Callable[[], None]
    """Fetches and builds what is needed, once."""
    guarantees: tuple[Guarantee, ...] = GUARANTEES
    records_max: int | None = None
    """For the very slow: he is stopped there, and what he made must be how the others begin."""


_PIPELINE = """\
pipeline: {group}
source: {{topic: {source}}}
operators:
{operators}
sink: {{topic: {sink}}}
"""
_STEPS = {
    "deduplicate": f"  - deduplicate: {{by: key, interval: {source.INTERVAL_MS}ms}}",
    "reorder": f"  - reorder: {{grace: {source.GRACE_MS}ms}}",
    "suppress": f"  - suppress: {{until: time-limit, limit: {source.LIMIT_MS}ms}}",
    "windowed-count": (
        "  - aggregate: {function: count, window: {kind: tumbling,"
        f" size: {source.WINDOW_MS}ms, grace: {source.WINDOW_GRACE_MS}ms}}}}\n"
        "  - suppress: {until: window-closes}"
    ),
}


def pipeline_text(operator: str, *, group: str, source: str, sink: str) -> str:
    """The line of YAML that a user of headrace writes for an operator."""
    operators = _STEPS[operator]
    return _PIPELINE.format(group=group, source=source, sink=sink, operators=operators)


def _headrace(job: Job) -> Command:
    """As a user starts it."""
    pipeline = job.folder / "pipeline.yaml"
    text = pipeline_text(job.operator, group=job.group, source=job.source, sink=job.sink)
    pipeline.write_text(text, "utf-8")
    environment = {
        "HEADRACE_BOOTSTRAP_SERVERS": job.bootstrap_servers,
        "HEADRACE_STATE_FOLDER": str(job.folder / "state"),
        "HEADRACE_GUARANTEE": job.guarantee,
        "HEADRACE_COMMIT_INTERVAL": f"{job.commit_interval_ms}ms",
    }
    command = Path(sys.executable).with_name("headrace")
    return Command([str(command), "run", str(pipeline)], environment)


def _told(job: Job, **more: str) -> dict[str, str]:
    """The variables that every peer reads."""
    told = {
        "OPERATOR": job.operator,
        "GUARANTEE": job.guarantee,
        "GROUP": job.group,
        "SOURCE": job.source,
        "SINK": job.sink,
        "TABLE": job.table,
        "BOOTSTRAP_SERVERS": job.bootstrap_servers,
        "STATE_FOLDER": str(job.folder / "state"),
        "COMMIT_INTERVAL_MS": str(job.commit_interval_ms),
        "PARTITIONS": str(source.PARTITIONS),
        "INTERVAL_MS": str(source.INTERVAL_MS),
        "GRACE_MS": str(source.GRACE_MS),
        "LIMIT_MS": str(source.LIMIT_MS),
        "WINDOW_MS": str(source.WINDOW_MS),
        "WINDOW_GRACE_MS": str(source.WINDOW_GRACE_MS),
        **more,
    }
    return {f"RACE_{name}": value for name, value in told.items()}


def _streams(
    threads: int = 1, collector: str = "G1", cache: str = "as it comes"
) -> Callable[[Job], Command]:
    def command(job: Job) -> Command:
        guarantee = {
            "exactly-once": "exactly_once_v2",
            "at-least-once": "at_least_once",
        }[job.guarantee]
        told = _told(
            job,
            GUARANTEE=guarantee,
            THREADS=str(threads),
            CACHE=cache,
        )
        return Command(environments.streams_command(collector), told)

    return command


def _bare(job: Job) -> Command:
    return Command([sys.executable, "-m", "tests.bench.peers.bare"], _told(job))


def bare_restore(job: Job, changelogs: list[str]) -> Command:
    """A client that reads changelogs into databases."""
    told = _told(job, OPERATOR="restore", CHANGELOGS=" ".join(changelogs))
    return Command([sys.executable, "-m", "tests.bench.peers.bare"], told)


def _quix(job: Job) -> Command:
    python = environments.quix_python()
    return Command([str(python), "-m", "tests.bench.peers.quix"], _told(job))


def _plain_faust(job: Job) -> Command:
    module = ["-m", "tests.bench.peers.plain_faust"]
    options = ["worker", "--without-web", "--loglevel=warn"]
    return Command([sys.executable, *module, *options], _told(job))


def _nothing() -> None:
    pass


_ALL = frozenset(OPERATORS)
CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant("headrace", "headrace", _ALL, _headrace, _nothing),
        Contestant(
            "streams",
            "Kafka Streams, 1 thread",
            _ALL,
            _streams(),
            environments.build_streams,
        ),
        Contestant(
            "streams-parallel",
            "Kafka Streams, 1 thread, Parallel collector",
            _ALL,
            _streams(collector="Parallel"),
            environments.build_streams,
        ),
        Contestant(
            "streams-cache",
            "Kafka Streams, 1 thread, cache turned over",
            # Where the output stays the same; deduplicate comes without a cache, the count with.
            frozenset({"deduplicate", "windowed-count"}),
            _streams(cache="turned over"),
            environments.build_streams,
        ),
        Contestant(
            "streams-2",
            "Kafka Streams, 2 threads",
            _ALL,
            _streams(threads=2),
            environments.build_streams,
        ),
        Contestant(
            "quix",
            "Quix Streams",
            frozenset({"deduplicate", "windowed-count"}),
            _quix,
            environments.build_quix,
        ),
        Contestant(
            "faust",
            "Faust",
            frozenset({"deduplicate"}),
            _plain_faust,
            _nothing,
            # Its own exactly-once leaves the output outside the transaction.
            guarantees=("at-least-once",),
            records_max=20_000,
        ),
        Contestant("bare", "bare aiokafka", frozenset({"copy"}), _bare, _nothing),
    )
}
