"""Plots as SVG, drawn by hand: a few shapes each, no library, no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from headrace.services.cli.demo.counted import Count
from headrace.services.cli.demo.priced import Alert, Priced, money

_WIDTH, _HEIGHT, _MARGIN = 720, 240, 44
_TICKS = 6


class Axes(NamedTuple):
    """Where values stand in a plot."""

    x_max: float
    y_min: float
    y_max: float

    def x(self, value: float) -> float:
        """From the left."""
        return _MARGIN + value / self.x_max * (_WIDTH - 2 * _MARGIN)

    def y(self, value: float) -> float:
        """From above."""
        share = (value - self.y_min) / (self.y_max - self.y_min)
        return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)


def clicks_plot(clicks: Sequence[tuple[int, str]]) -> str:
    """Each click by its arrival and its own time; who is in order lies on a line."""
    times_s = [at_ms / 1_000 for at_ms, _ in clicks]
    axes = Axes(len(clicks), 0, max(times_s))
    dots = [
        _dot(axes.x(number), axes.y(at_s), f"fate-{fate}", f"click {number}, {at_s:.1f} s: {fate}")
        for number, (at_s, (_, fate)) in enumerate(zip(times_s, clicks, strict=True))
    ]
    return _plot("Clicks as they arrived", axes, ("arrival", "time, s"), dots)


def counts_plot(counts: Sequence[Count], alerts: Iterable[Alert]) -> str:
    """Each final count as a bar, those with an alert marked, and what is allowed."""
    alerted = {(alert.user, alert.from_s): alert.most for alert in alerts}
    axes = Axes(len(counts), 0, max(count.clicks for count in counts) + 1)
    shapes = []
    for number, count in enumerate(counts):
        left, right = axes.x(number + 0.15), axes.x(number + 0.85)
        top = axes.y(count.clicks)
        kind = "alert" if (count.user, count.from_s) in alerted else "count"
        said = f"{count.user}, {count.from_s} to {count.to_s} s: {count.clicks}"
        shapes.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}"'
            f' height="{axes.y(0) - top:.1f}"><title>{escape(said)}</title></rect>'
            f'<text x="{(left + right) / 2:.1f}" y="{axes.y(0) + 14:.1f}" class="name">'
            f"{escape(count.user)} {count.from_s}s</text>"
        )
    shapes += [
        _line([(axes.x(0), axes.y(most)), (axes.x(len(counts)), axes.y(most))])
        for most in sorted(set(alerted.values()))
    ]
    return _plot("Final counts, and how many are allowed", axes, ("", "clicks"), shapes)


def price_plot(
    product: str, changes: Sequence[tuple[int, int]], orders: Iterable[Priced], until_ms: int
) -> str:
    """A product's price over time, and its orders: where they belong, and where the raw join is."""
    costs = [cents / 100 for _, cents in changes]
    axes = Axes(until_ms / 1_000, min(costs) - 0.2, max(costs) + 0.2)
    steps: list[tuple[float, float]] = []
    for place, (at_ms, cents) in enumerate(changes):
        end_ms = changes[place + 1][0] if place + 1 < len(changes) else until_ms
        y = axes.y(cents / 100)
        steps += [(axes.x(at_ms / 1_000), y), (axes.x(end_ms / 1_000), y)]
    shapes = [_line(steps, "price")]
    for order in orders:
        x = axes.x(order.at_ms / 1_000)
        for cents in order.at_once_cents:
            if cents != order.price_cents:
                said = f"{order.order}, raw and at once: {money(cents)}"
                shapes.append(_dot(x, axes.y(cents / 100), "wrong", said))
        said = f"{order.order}: {money(order.price_cents)}"
        shapes.append(_dot(x, axes.y(order.price_cents / 100), "right", said))
    return _plot(product, axes, ("time, s", "price"), shapes)


def legend(names: Mapping[str, str]) -> str:
    """Return a list that names the colours."""
    items = "".join(
        f'<li><svg width="12" height="12">{_dot(6, 6, kind, name)}</svg> {escape(name)}</li>'
        for kind, name in names.items()
    )
    return f'<ul class="legend">{items}</ul>'


def _plot(title: str, axes: Axes, names: tuple[str, str], shapes: Iterable[str]) -> str:
    x_name, y_name = names
    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    marks = []
    for tick in range(_TICKS + 1):
        value = axes.y_min + (axes.y_max - axes.y_min) * tick / _TICKS
        marks.append(
            f'<text class="tick" x="{_MARGIN - 6}" y="{axes.y(value) + 4:.1f}"'
            f' text-anchor="end">{value:.3g}</text>'
        )
        if x_name:
            across = axes.x_max * tick / _TICKS
            marks.append(
                f'<text class="tick" x="{axes.x(across):.1f}" y="{bottom + 16}"'
                f' text-anchor="middle">{across:.3g}</text>'
            )
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' role="img" aria-label="{escape(title)}">'
        f'<path class="axis" d="M{_MARGIN} {_MARGIN}V{bottom}H{right}"/>{"".join(marks)}'
        f'<text class="tick" x="{right}" y="{bottom + 32}" text-anchor="end">{escape(x_name)}'
        f'</text><text class="tick" x="{_MARGIN}" y="{_MARGIN - 12}">{escape(y_name)}</text>'
        f"{''.join(shapes)}</svg></figure>"
    )


def _dot(x: float, y: float, kind: str, said: str) -> str:
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
        f"<title>{escape(said)}</title></circle>"
    )


def _line(points: Iterable[tuple[float, float]], kind: str = "allowed") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'
