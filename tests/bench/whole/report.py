"""The whole way as a page for people: what was measured, where, and by which command."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from headrace.services.broker.jars import kafka_version
from tests.bench.race.machine import machine
from tests.bench.rounds import compared
from tests.bench.whole.agreement import Agreement
from tests.bench.whole.delay import COMMIT_INTERVAL_MS, GRACE_MS, PRODUCTS, Delayed
from tests.bench.whole.kept import Kept, Part, Told
from tests.bench.whole.measured import Whole

TITLES = {
    "headrace": "headrace, sidecars and Spark job",
    "flink": "Flink SQL",
    "streams": "Kafka Streams",
}
_PEERS = Path(__file__).parents[1] / "peers"
_MIB = 1 << 20
_TITLE = """\
# The whole way

From raw orders and raw prices, as JSON, to priced orders, as JSON: each record once by its key and
the id in a header, each order with the price that its product had at the order's own time, exactly
once.
"""
_TOLD = """
```sh
{told.command}
```

On {told.where}. {told.versions}. {rounds}

The load (means of 1, 5 and 15 minutes) was {loads}. Above two, others shared the two cores.
"""
_ROUNDS = """\
So CPU time is the figure to read; it rises under load as well, for all alike. Seconds only tell how
long a run took.

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
_PICTURE = """
![orders per CPU-second](whole.svg)
"""
_PARTS = """
Which part takes the CPU-seconds, in all and warm:

| who | orders | part | CPU-s | warm CPU-s | MiB |
|---|--:|---|--:|--:|--:|
"""
_DELAY = """
## The delay
"""
_DELAYED = """\
Then delays are longer, and not for all alike.

Orders, and a fifth as many prices, come in by the clock, in the order of their times, over
{products} products, a twentieth twice. The delay is from an order's own time to the moment at which
a consumer of what is committed has its priced row. Of each delay {grace_s} s are the grace, in
which a price may still come. Rows are committed every {commit_ms:,} ms by all: so often the job has
a micro-batch, Flink a checkpoint, and Kafka Streams its commit. Behind the first row each becomes
warm for {warming_s:,.0f} s, and is measured for {measured_s:,.0f} s. Figures are medians of the
rounds, memory is the most. Cores are CPU-seconds a second of all processes of a contestant, without
the broker's. *Measured* are rows of orders of that time, whenever they came, and *rows* are all,
from the first order to the last.

| who | orders/s | p50, ms | p99, ms | p99 of all rounds | cores | MiB | measured | rows | agrees |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|
"""
_DELAYED_BY = """
- **headrace** runs its two sidecars and its job at once, all with their defaults. The sidecars
  commit every 200 ms, and what they commit waits for the next micro-batch.
- **Flink SQL** makes its watermark by the record and not, as by default, five times a second. A
  partition is idle after 10 s, as in headrace. All other options are those below.
- **Kafka Streams** lets an order leave once a later order of its partition has passed the grace.
  The others wait until the prices have come as far, too.
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


def report(kept: Kept) -> str:
    """Return the page."""
    rounds = _rounds(kept.rounds) if kept.rounds else []
    delay = _delay(kept.delay) if kept.delay else []
    return "".join([_TITLE, *rounds, *delay, _FOOT])


def told(command: str, loads: list[str]) -> Told:
    """Say by which command something was measured, here and now."""
    return Told(command, ", ".join(machine().values()), _versions(), loads)


def _rounds(part: Part[Whole]) -> list[str]:
    groups = list(_groups(part.runs))
    rows = [_row(group, part.runs) for group in groups]
    parts = [line for group in groups for line in _part_rows(group)]
    return [_head(part), _ROUNDS, _TABLE, *rows, _PICTURE, _PARTS, *parts]


def _delay(part: Part[Delayed]) -> list[str]:
    load = part.runs[0].load
    said = _DELAYED.format(
        products=PRODUCTS,
        grace_s=GRACE_MS // 1_000,
        commit_ms=COMMIT_INTERVAL_MS,
        warming_s=load.warming_s,
        measured_s=load.measured_s,
    )
    rates = sorted({run.load.orders_a_second for run in part.runs})
    groups = [
        [run for run in part.runs if (run.load.orders_a_second, run.who) == (rate, who)]
        for rate in rates
        for who in TITLES
    ]
    rows = [_delay_row(group) for group in groups if group]
    return [_DELAY, _head(part), said, *rows, _DELAYED_BY]


def _delay_row(group: Sequence[Delayed]) -> str:
    p99s_ms = sorted(run.p99_ms for run in group)
    cells = [
        TITLES[group[0].who],
        f"{group[0].load.orders_a_second:,}",
        f"{median(run.p50_ms for run in group):,.0f}",
        f"{median(p99s_ms):,.0f}",
        f"{p99s_ms[0]:,.0f} to {p99s_ms[-1]:,.0f}" if len(group) > 1 else "",
        f"{median(run.cores for run in group):.2f}",
        f"{max(run.memory_mib for run in group):,.0f}",
        f"{sum(run.orders for run in group):,}",
        f"{sum(run.agreement.rows for run in group):,}",
        _agrees([run.agreement for run in group]),
    ]
    return f"| {' | '.join(cells)} |\n"


def _head(part: Part[Whole] | Part[Delayed]) -> str:
    rounds = {run.round for run in part.runs}
    said = f"{len(rounds)} rounds." if len(rounds) > 1 else "One round."
    loads = " before, and behind it ".join(part.told.loads)
    return _TOLD.format(told=part.told, rounds=said, loads=loads)


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
        _agrees([run.agreement for run in group]),
    ]
    return f"| {' | '.join(cells)} |\n"


def _ratios(group: Sequence[Whole], runs: Sequence[Whole]) -> tuple[str, str]:
    """Return headrace's warm figure by a contestant's: in the middle, and in the worst round."""
    ours = {
        run.round: run.steady_orders_per_cpu_second
        for run in runs
        if (run.who, run.orders) == ("headrace", group[0].orders)
    }
    theirs = {
        run.round: run.steady_orders_per_cpu_second for run in group if run.used.steady_orders
    }
    return ("", "") if group[0].who == "headrace" else compared(ours, theirs)


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


def _agrees(agreements: Sequence[Agreement]) -> str:
    wrong = [agreement for agreement in agreements if not agreement.is_whole]
    if not wrong:
        return "yes"
    found = max(wrong, key=lambda one: sum(one[1:]))
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
