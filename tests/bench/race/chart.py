"""The race as a picture: bars of records per CPU-second, an operator a group."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.chart import Bar, Group, chart
from tests.bench.race.contestants import CONTESTANTS
from tests.bench.race.figures import Row


def race_chart(rows: Sequence[Row]) -> str:
    """An SVG of every row that could be measured."""
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        if row.steady_per_cpu_second is not None:
            label = f"{CONTESTANTS[row.contestant].title}, {row.guarantee.replace('-', ' ')}"
            bar = Bar(label, row.steady_per_cpu_second.median, row.contestant == "headrace")
            groups.setdefault(row.operator, []).append(bar)
    return chart(
        [Group(f"{name}, records per CPU-second, warm", bars) for name, bars in groups.items()]
    )
