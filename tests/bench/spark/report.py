"""The measurements, as a table and as a picture."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from statistics import median, median_high
from typing import NamedTuple

from tests.bench.chart import Bar, Group, chart
from tests.bench.race.machine import machine
from tests.bench.rounds import compared
from tests.bench.spark.cleaned import GRACE_MS
from tests.bench.spark.jobs import orders_prices
from tests.bench.spark.queries import AVRO, JSON, QUERIES
from tests.bench.spark.shipped import EACH, SINKS, Shipped
from tests.bench.spark.streams import EACH_UPDATE, PEER
from tests.bench.spark.trickle import Delay
from tests.bench.steady import ORDERS_A_SECOND, PRICES_A_SECOND

JOB_TITLES = {
    "parquet": "headrace, to Parquet",
    "delta": "headrace, to Delta",
    "kafka": "headrace, to Kafka in transactions",
    JSON: "headrace, a query from JSON to JSON",
    AVRO: "headrace, a query from Avro to Avro",
    "json": "Kafka Streams, JSON, exactly once",
    "at_least_once": "Kafka Streams, as bytes, nothing parsed, at least once",
    "exactly_once_v2": "Kafka Streams, as bytes, nothing parsed, exactly once",
    PEER: "Kafka Streams, JSON, exactly once",
    EACH: "headrace, by `updates: each`",
    EACH_UPDATE: "Kafka Streams, without its cache",
}
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
_COLUMNS = (
    "records",
    "a CPU-second",
    "warm",
    "of Kafka Streams",
    "worst round",
    "CPU-s",
    "Java",
    "workers",
    "driver",
    "seconds",
    "MiB",
    "rows",
)
_PEERS = {EACH: EACH_UPDATE, EACH_UPDATE: EACH_UPDATE}
"""Kafka Streams for those that do not stand beside it as it comes."""
_JOBS = """\
Users get the job `orders-prices` as `headrace spark` starts it. It runs by progress, over the
cleaned topics of two sidecars with JSON values, {orders} orders and {prices} prices, with 100,000
orders a micro-batch.
A query's file makes the same rows into Kafka in transactions: from the same topics in JSON, and in
Avro from topics of the same records, whose schemas stand in a registry on this machine. Kafka
Streams has no contestant in Avro here.
Kafka Streams does the same over the same topics, with Jackson: it holds orders by a grace of
{grace} ms, as the sidecars' progress does, and parses an order and its price when they meet. As
bytes, it holds and parses nothing, and its row is both values side by side. All made the same rows.
{where}; load before and behind it {loads}. Python {python}, Spark {spark}. CPU time of all
processes, first from nothing to the end, then of the second half alone. `make bench-spark`

{rounds} Figures are medians, memory is the most. *Of Kafka Streams* is the warm figure as a
multiple of that of Kafka Streams with JSON in the same round, and *worst round* is the least of
these. The query in Avro ran apart from the others.

"""
_OTHERS = """
The other shipped jobs, alike: into Kafka in transactions, with JSON, in micro-batches of 100,000
records of the largest topic, beside the same in Kafka Streams over the same topics, by its own
operators over versioned tables, with Jackson. Records a CPU-second are those of a job's largest
topic; those of its other one come on top. All rows of `count-alerts` were compared. Of the others
it was the last row of each key: both systems read several topics or partitions in turns of their
own, and so differ in the rows between. All made the same, but that Kafka Streams left {stayed} rows
of `orders-customers` that should have gone: it drops the answer that deletes a row if the order has
changed since, and that change gets no answer if there is no customer. Kafka Streams' cache merges
updates of an aggregate that come between two commits, and headrace those of a micro-batch; without
its cache, and by `updates: each`, each update leaves. Of a foreign key, Kafka Streams drops the
answers to orders that have been replaced since, which are many here, for it reads the orders far
ahead of the answers. Rows are all that were written, with tombstones.

"""
_DELAY = """
A trickle of {orders} orders and {prices} prices a second, with the job's own defaults, into Kafka,
behind sidecars with a grace of {delay.grace_ms:,} ms: from an order's time to its priced record
{delay.p50_ms:,.0f} ms in the median and {delay.p99_ms:,.0f} ms in the 99th percentile, over
{delay.orders:,} orders; {delay.cores:.2f} cores and {delay.memory_mib:,.0f} MiB. A micro-batch took
{delay.batch_ms:,.0f} ms in the median; one of a plain query, which counts the records of the same
topics by key with `transformWithStateInPandas`, took {delay.plain_batch_ms:,.0f} ms.
"""
_HEAD = """
The join alone, without sidecars' progress, checks and JSON; no shipped job takes that path. CPU
time of all processes from the opened session to the last row, the JVM's warming up included; a
micro-batch takes a million facts at most.

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
    memory_mib: float

    @property
    def facts_per_cpu_second(self) -> float:
        """The time that counts; the versions come on top."""
        return self.facts / self.cpu_seconds


def report(
    jobs: Sequence[Shipped], delay: Delay | None, runs: Sequence[Run], loads: Iterable[str]
) -> str:
    """The tables, and where they were made."""
    rows = (
        f"| {TITLES[run.who]} | {run.facts:,} | {run.versions:,} | {run.facts_per_cpu_second:,.0f}"
        f" | {run.seconds:,.1f} | {run.cpu_seconds:,.1f} | {run.java_cpu_seconds:,.1f}"
        f" | {run.memory_mib:,.0f} | {run.rows:,} |\n"
        for run in runs
    )
    alone = [_HEAD, *rows, *_more(runs), _FOOT] if runs else []
    said = {"orders": ORDERS_A_SECOND, "prices": PRICES_A_SECOND}
    delayed = [] if delay is None else [_DELAY.format(delay=delay, **said)]
    prices = [job for job in jobs if job.job == orders_prices.JOB]
    others = [job for job in jobs if job.job != orders_prices.JOB]
    return "".join([*_job_rows(prices, loads), *_other_rows(others), *delayed, *alone])


def _other_rows(jobs: Sequence[Shipped]) -> list[str]:
    if not jobs:
        return []
    stayed = f"{max(job.stayed for job in jobs):,}"
    rows = (f"| {group[0].job} {_job_row(group, jobs)}" for group in _groups(jobs))
    return [_OTHERS.format(stayed=stayed), _header("job", "who"), *rows]


def _job_rows(jobs: Sequence[Shipped], loads: Iterable[str]) -> list[str]:
    if not jobs:
        return []
    head = _JOBS.format(
        orders=f"{jobs[0].facts:,}",
        prices=f"{jobs[0].versions:,}",
        grace=f"{GRACE_MS:,}",
        where=", ".join(machine().values()),
        loads=" | ".join(loads),
        python=platform.python_version(),
        spark=version("pyspark"),
        rounds=_said(len({job.round for job in jobs})),
    )
    return [head, _header("who"), *(_job_row(group, jobs) for group in _groups(jobs))]


def _header(*first: str) -> str:
    names, rules = " | ".join((*first, *_COLUMNS)), "---|" * len(first) + "--:|" * len(_COLUMNS)
    return f"| {names} |\n|{rules}\n"


def _said(rounds: int) -> str:
    return "One round." if rounds == 1 else f"{rounds} rounds, in each of which all ran in turn."


def _groups(jobs: Sequence[Shipped]) -> list[list[Shipped]]:
    """All rounds of each contestant, with each job and size."""
    groups: defaultdict[tuple[str, int, str], list[Shipped]] = defaultdict(list)
    for job in jobs:
        groups[job.job, job.facts, job.who].append(job)
    return [*groups.values()]


def _job_row(group: Sequence[Shipped], jobs: Sequence[Shipped]) -> str:
    one = group[0]
    cpu_s = [
        [job.cpu_seconds.get(name, 0.0) for job in group] for name in ("java", "workers", "python")
    ]
    cells = [
        JOB_TITLES[one.who],
        f"{one.facts:,} + {one.versions:,}" if one.versions else f"{one.facts:,}",
        f"{_whole(group):,.0f}",
        f"{_warm(group):,.0f}",
        *_ratios(group, jobs),
        f"{median(sum(job.cpu_seconds.values()) for job in group):,.1f}",
        *(f"{median(each):,.1f}" for each in cpu_s),
        f"{median(job.seconds for job in group):,.1f}",
        f"{max(sum(job.memory_bytes_max.values()) for job in group) / (1 << 20):,.0f}",
        f"{median_high(job.rows for job in group):,}",
    ]
    return f"| {' | '.join(cells)} |\n"


def _whole(group: Sequence[Shipped]) -> float:
    return median(job.facts_per_cpu_second for job in group)


def _warm(group: Sequence[Shipped]) -> float:
    return median(job.steady_facts_per_cpu_second for job in group)


def _ratios(group: Sequence[Shipped], jobs: Sequence[Shipped]) -> tuple[str, str]:
    """Return a contestant's warm figure by its peer's: in the middle, and in the worst round."""
    one = group[0]
    peer = _PEERS.get(one.who, "json" if one.job == orders_prices.JOB else PEER)
    theirs = {
        job.round: job.steady_facts_per_cpu_second
        for job in jobs
        if (job.job, job.facts, job.who) == (one.job, one.facts, peer)
    }
    ours = {job.round: job.steady_facts_per_cpu_second for job in group}
    return ("", "") if one.who in (peer, AVRO) else compared(ours, theirs)


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


def spark_chart(jobs: Sequence[Shipped]) -> str:
    """Orders a CPU-second of `orders-prices` over the first size, in all and warm."""
    jobs = [job for job in jobs if job.job == orders_prices.JOB and job.facts == jobs[0].facts]
    ours = {*SINKS, *QUERIES}
    heights = {"orders a CPU-second, all of it": _whole, "warm": _warm}
    bars = {
        title: [
            Bar(JOB_TITLES[group[0].who], height(group), group[0].who in ours)
            for group in _groups(jobs)
        ]
        for title, height in heights.items()
    }
    return chart([Group(title, each) for title, each in bars.items()])
