"""The measurements, as a table and as a picture."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from tests.bench.chart import Bar, Group, chart
from tests.bench.race.machine import machine

TITLES = {
    "headrace": "headrace, to Parquet",
    "headrace-kafka": "headrace, to Kafka in transactions",
    "with-state": "applyInPandasWithState, by hand",
    "stream-stream": "Spark's stream-stream join",
    "duplicates": "dropDuplicatesWithinWatermark",
    "bulk": "headrace, bulk",
    "at_least_once": "Kafka Streams, at least once",
    "exactly_once_v2": "Kafka Streams, exactly once",
}
_HEAD = """\
Facts joined with a versioned table: {where}; load before and behind it {loads}. Python {python},
Spark {spark} with two cores. CPU time of all processes from the opened session to the last row, the
JVM's warming up included; a micro-batch takes a million facts at most. `make bench-spark`

| who | facts | versions | facts a CPU-second | seconds | CPU-s | of it Java | MiB | rows |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
"""
_MORE = """
Beyond the warming up: what each fact, and the half version that comes with it, costs from
{fewer:,} facts to {more:,}.

| who | CPU-µs a fact | facts a CPU-second |
|---|--:|--:|
"""
_FOOT = """
All who join as of a fact's time made the same rows. Spark's stream-stream join gives every fact
every version before it, and dropDuplicates joins nothing: they show what state by the row costs.
"""


class Run(NamedTuple):
    """One contestant over one size."""

    who: str
    facts: int
    versions: int
    rows: int
    seconds: float
    cpu_seconds: float
    java_cpu_seconds: float
    start_up_cpu_seconds: float
    resident_mib: float

    @property
    def facts_per_cpu_second(self) -> float:
        """The time that counts; the versions come on top."""
        return self.facts / self.cpu_seconds


def report(runs: Sequence[Run], loads: Iterable[str]) -> str:
    """The table, and where it was made."""
    head = _HEAD.format(
        where=", ".join(machine().values()),
        loads=" | ".join(loads),
        python=platform.python_version(),
        spark=version("pyspark"),
    )
    rows = (
        f"| {TITLES[run.who]} | {run.facts:,} | {run.versions:,} | {run.facts_per_cpu_second:,.0f}"
        f" | {run.seconds:,.1f} | {run.cpu_seconds:,.1f} | {run.java_cpu_seconds:,.1f}"
        f" | {run.resident_mib:,.0f} | {run.rows:,} |\n"
        for run in runs
    )
    return "".join([head, *rows, *_more(runs), _FOOT])


def _more(runs: Sequence[Run]) -> list[str]:
    """The cost of more facts, for contestants that ran with several sizes."""
    sizes = sorted({run.facts for run in runs})
    measured = {(run.who, run.facts): run.cpu_seconds for run in runs}
    both = [who for who in TITLES if all((who, facts) in measured for facts in sizes[-2:])]
    if not both or sizes[-2:] == sizes[-1:]:
        return []
    fewer, more = sizes[-2:]
    lines = [_MORE.format(fewer=fewer, more=more)]
    for who in both:
        seconds = measured[who, more] - measured[who, fewer]
        each = seconds / (more - fewer)
        lines.append(f"| {TITLES[who]} | {each * 1e6:.1f} | {1 / each:,.0f} |\n")
    return lines


def spark_chart(runs: Sequence[Run]) -> str:
    """Facts a CPU-second, a size a group."""
    groups: dict[int, list[Bar]] = {}
    for run in runs:
        bar = Bar(TITLES[run.who], run.facts_per_cpu_second, run.who.startswith("headrace"))
        groups.setdefault(run.facts, []).append(bar)
    return chart(
        [Group(f"{facts:,} facts, facts a CPU-second", bars) for facts, bars in groups.items()]
    )
