"""The whole way as a picture: bars of orders per CPU-second, a size a group."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tests.bench.chart import Bar, Group, chart
from tests.bench.whole.measured import Whole
from tests.bench.whole.report import TITLES


def whole_chart(runs: Sequence[Whole]) -> str:
    """An SVG of the middle of the rounds of each contestant, all of it and warm."""
    groups = []
    for orders in sorted({run.orders for run in runs}):
        of_size = [run for run in runs if run.orders == orders]
        groups += [
            Group(f"{orders:,} orders, orders per CPU-second", _bars(of_size, is_warm=False)),
            Group(f"{orders:,} orders, warm", _bars(of_size, is_warm=True)),
        ]
    return chart([group for group in groups if group.bars])


def _bars(runs: Sequence[Whole], *, is_warm: bool) -> list[Bar]:
    bars = []
    for who, title in TITLES.items():
        found = [
            run.steady_orders_per_cpu_second if is_warm else run.orders_per_cpu_second
            for run in runs
            if run.who == who and (run.used.steady_orders or not is_warm)
        ]
        if found:
            bars.append(Bar(title, median(found), who == "headrace"))
    return bars
