"""The measurements as a table, and whether they keep to the bar."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from tests.bench.race.machine import machine
from tests.bench.tables.inputs import ORDERS_A_PRICE
from tests.bench.tables.measured import WARMING_BATCHES, Figures

BAR = 1.2
_MIB = 1 << 20
_HEAD = """\
The job `orders-prices` as `headrace spark` starts it, to Kafka in transactions, over tables of so
many products. It reads the table in micro-batches of a million. Then it is started again and takes
so many orders a micro-batch, with a change of a price to every {ratio} orders, of products drawn
evenly.
{batches} micro-batches are measured, behind {warming} for which Java still compiles; memory is the
most of that second run. All priced orders are right. {where}; load before and behind it {loads}.
Python {python}, Spark {spark}. `python -m tests.bench.tables`

| orders | keys | CPU-s | Java | workers | driver | ms | written | kept | driver | Java | workers |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""
_FOOT = """
First what a micro-batch takes, as CPU time, time, and MiB written into the checkpoint; then MiB
of the whole checkpoint, and of memory.
"""
_BAR = """
A micro-batch of {orders:,} orders over {most:,} keys against one over {fewest:,}: {said}. The bar
is {bar:.1f}.
"""
_COSTS: dict[str, Callable[[Figures], float]] = {
    "CPU time": lambda each: each.cpu_seconds_a_batch,
    "time": lambda each: each.ms_a_batch,
    "bytes of the checkpoint": lambda each: each.written_bytes_a_batch,
    "memory": lambda each: sum(each.memory_bytes_max.values()),
}


def report(measured: Sequence[Figures], loads: Iterable[str]) -> str:
    """The table, where it was made, and the last row against the first."""
    head = _HEAD.format(
        ratio=ORDERS_A_PRICE,
        batches=measured[0].batches,
        warming=WARMING_BATCHES,
        where=", ".join(machine().values()),
        loads=" | ".join(loads),
        python=platform.python_version(),
        spark=version("pyspark"),
    )
    rows = "".join(map(_row, measured))
    return head + rows + _FOOT + "".join(map(_said, _alike(measured)))


def _alike(measured: Sequence[Figures]) -> Iterator[Sequence[Figures]]:
    """Yield those of as many orders, if they are of several tables."""
    for orders in dict.fromkeys(each.orders for each in measured):
        alike = [each for each in measured if each.orders == orders]
        if len(alike) > 1:
            yield alike


def _said(measured: Sequence[Figures]) -> str:
    fewest, most = measured[0], measured[-1]
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios(fewest, most).items())
    return _BAR.format(orders=most.orders, most=most.keys, fewest=fewest.keys, said=said, bar=BAR)


def ratios(fewest: Figures, most: Figures) -> dict[str, float]:
    """Divide the costs of a micro-batch over many keys by those of one over few."""
    return {name: cost(most) / cost(fewest) for name, cost in _COSTS.items()}


def _row(each: Figures) -> str:
    programs = ("java", "workers", "python")
    cpu = " | ".join(f"{each.cpu_seconds.get(name, 0.0) / each.batches:.2f}" for name in programs)
    memory = " | ".join(
        f"{each.memory_bytes_max.get(name, 0) / _MIB:,.0f}"
        for name in ("python", "java", "workers")
    )
    return (
        f"| {each.orders:,} | {each.keys:,} | {each.cpu_seconds_a_batch:.2f} | {cpu}"
        f" | {each.ms_a_batch:,.0f}"
        f" | {each.written_bytes_a_batch / _MIB:,.2f} | {each.checkpoint_bytes / _MIB:,.0f}"
        f" | {memory} |\n"
    )
