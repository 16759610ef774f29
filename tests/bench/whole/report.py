"""The whole way as a page for people: what was measured, where, and by which command."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from headrace.services.broker.jars import kafka_version
from tests.bench.race.machine import machine
from tests.bench.whole.measured import Whole

TITLES = {
    "headrace": "headrace, sidecars and Spark job",
    "flink": "Flink SQL",
    "streams": "Kafka Streams",
}
_PEERS = Path(__file__).parents[1] / "peers"
_MIB = 1 << 20
_HEAD = """\
# The whole way

From raw orders and raw prices, as JSON, to priced orders, as JSON: each record once by its key and
the id in a header, each order with the price that its product had at the order's own time, exactly
once.

```sh
{command}
```

On {where}. {versions}. {rounds}

The load (means of 1, 5 and 15 minutes) was {loads}. Above two, others shared the two cores. So CPU
time is the figure to read; it rises under load as well, for all alike. Seconds only tell how long a
run took.

Time counts for all processes of a contestant, without the broker's. *All* is orders a CPU-second
from nothing to the end, start and Java's compiling included; the prices, half as many, come on top.
*Warm* is the same behind the first four tenths of the work: of headrace's micro-batches, and of the
mean of what a peer has read and committed and the rows that it has written. Figures are medians of
the rounds. *headrace is* its warm figure as a multiple of that contestant's, and *worst round* is
the least of these.
"""
_TABLE = """
| who | orders | all | warm | headrace is | worst round | CPU-s | seconds | MiB | rows | agrees |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
"""
_PARTS = """
Which part takes the CPU-seconds, in all and warm:

| who | orders | part | CPU-s | warm CPU-s | MiB |
|---|--:|---|--:|--:|--:|
"""
_FOOT = """

## The comparison

Rows are compared one by one with those that a join in plain Python makes: key, every field, and the
time of the row in Kafka. A tenth of the records come up to 5 s late, a twentieth come twice, and
the grace is 10 s. Three things are left out, since the systems promise different things about them:
records that come later than the grace, tombstones, and duplicates with an earlier time than the
first.

- **headrace** runs as shipped: `headrace run` with `deduplicate` and `reorder` for each topic, then
  `headrace spark` with `orders-prices` by progress, in ten micro-batches. The sidecars commit every
  200 ms. They run first and the job then; their memory is added up, since in service they run at
  once.
- **Flink SQL** has a `ROW_NUMBER` over each topic and `FOR SYSTEM_TIME AS OF`, state in RocksDB
  with its options for much memory (2 GiB), timers on the heap, reused objects, a checkpoint every
  5 s. Orders are kept by arrival, which took a tenth less than by time. Mini-batches are refused
  here, since their results would be taken back. Aligned sources and Java's Parallel collector
  gained nothing. It runs with a parallelism of one: see below.
- **Kafka Streams** is one topology with two threads: KIP-655's processor over two stores for each
  topic, a versioned table, a stream-table join with grace, Jackson, a commit every 5 s. The
  topology repartitions nothing. Over half a million orders, in one round, Java's Parallel collector
  took 37 CPU-seconds where G1 took 45, and 2.3 GiB where G1 took 0.9; caches for the ids took more.
- Memory is added up over processes; a page that several share, as Python workers do, counts once.
- Flink and Kafka Streams take the heap that Java chooses, a quarter of the machine's memory.
  Spark's driver has what the job's defaults give it.

**Why Flink needs a parallelism of one.** A query can only make a table with versions by keeping the
last row of each key by time. Such a query drops a row that comes with an earlier time than the last
one. Behind a `ROW_NUMBER` by product and id, the prices of one product come from several tasks, and
not in the order of their times. So prices are lost, and orders get the price before, or no row:
with a parallelism of two, of 157,307 rows 58 were missing and 418 had another price. By the rules a
version that comes late is put in its place, so the rows of the others are right. One task gets the
prices in the order of their times, and with it Flink's rows are the same.
"""


def report(runs: Sequence[Whole], command: str, loads: Iterable[str]) -> str:
    """Return the page."""
    rounds = sorted({run.round for run in runs})
    said = f"{len(rounds)} rounds." if len(rounds) > 1 else "One round."
    where = ", ".join(machine().values())
    head = _HEAD.format(
        command=command,
        where=where,
        loads=" before, and behind it ".join(loads),
        versions=_versions(),
        rounds=said,
    )
    groups = list(_groups(runs))
    rows = [_row(group, runs) for group in groups]
    parts = [line for group in groups for line in _part_rows(group)]
    return "".join([head, _TABLE, *rows, _PARTS, *parts, _FOOT])


def _groups(runs: Sequence[Whole]) -> Iterator[list[Whole]]:
    """All rounds of each contestant with each size."""
    for orders in sorted({run.orders for run in runs}):
        for who in TITLES:
            group = [run for run in runs if (run.who, run.orders) == (who, orders)]
            if group:
                yield group


def _row(group: Sequence[Whole], runs: Sequence[Whole]) -> str:
    one = group[0]
    warm = [run.steady_orders_per_cpu_second for run in group if run.used.steady_orders]
    cells = [
        TITLES[one.who],
        f"{one.orders:,}",
        f"{median(run.orders_per_cpu_second for run in group):,.0f}",
        f"{median(warm):,.0f}" if warm else "too short",
        *_ratios(group, runs),
        f"{median(sum(run.used.cpu_seconds.values()) for run in group):,.1f}",
        f"{median(run.used.seconds for run in group):,.1f}",
        f"{max(sum(run.used.memory_bytes_max.values()) for run in group) / _MIB:,.0f}",
        f"{one.agreement.rows:,}",
        _agrees(group),
    ]
    return f"| {' | '.join(cells)} |\n"


def _ratios(group: Sequence[Whole], runs: Sequence[Whole]) -> tuple[str, str]:
    """Return headrace's warm figure by a contestant's: in the middle, and in the worst round."""
    ours = {
        run.round: run.steady_orders_per_cpu_second
        for run in runs
        if (run.who, run.orders) == ("headrace", group[0].orders)
    }
    ratios = {
        run.round: ours[run.round] / run.steady_orders_per_cpu_second
        for run in group
        if run.round in ours and run.used.steady_orders
    }
    if not ratios or group[0].who == "headrace":
        return "", ""
    worst = min(ratios, key=lambda number: ratios[number])
    return f"{median(ratios.values()):.2f}x", f"{ratios[worst]:.2f}x, round {worst + 1}"


def _part_rows(group: Sequence[Whole]) -> Iterator[str]:
    one = group[0]
    for part in one.used.cpu_seconds:
        cpu_s = median(run.used.cpu_seconds[part] for run in group)
        warm_s = median(run.used.steady_cpu_seconds.get(part, 0.0) for run in group)
        mib = max(run.used.memory_bytes_max.get(part, 0) for run in group) / _MIB
        yield (
            f"| {TITLES[one.who]} | {one.orders:,} | {part} | {cpu_s:,.1f} | {warm_s:,.1f}"
            f" | {mib:,.0f} |\n"
        )


def _agrees(group: Sequence[Whole]) -> str:
    wrong = [run for run in group if not run.agreement.is_whole]
    if not wrong:
        return "yes"
    found = max((run.agreement for run in wrong), key=lambda one: sum(one[1:]))
    names = ("missing", "other", "doubled", "surplus")
    said = ", ".join(
        f"{count:,} {name}" for name, count in zip(names, found[1:], strict=True) if count
    )
    return f"no: {said}"


def _versions() -> str:
    flink = (_PEERS / "flink" / "requirements.txt").read_text("utf-8")
    streams = (_PEERS / "streams" / "pom.xml").read_text("utf-8")
    found = {
        "broker": kafka_version(),
        "Spark": version("pyspark"),
        "Flink": re.findall(r"^apache-flink==(.+)$", flink, re.MULTILINE)[0],
        "Kafka Streams": re.findall(r"<version>([^<]+)", streams)[1],
        "Python": platform.python_version(),
    }
    return ", ".join(f"{name} {said}" for name, said in found.items())
