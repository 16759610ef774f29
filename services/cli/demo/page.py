"""The demo's results as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from headrace.services.cli.demo.counted import Count
from headrace.services.cli.demo.plots import clicks_plot, counts_plot, legend, price_plot
from headrace.services.cli.demo.priced import Alert, Priced, money

_FATES = {
    "fate-counted": "counted",
    "fate-duplicate": "thrown out: it came twice",
    "fate-late": "too late",
    "fate-dead": "cannot be read",
    "fate-held": "held: nothing later has come",
}
_PRICES = {
    "right": "behind the sidecars: the price at that time",
    "wrong": "raw and at once: another price",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --pale: #8793a1; --ground: #fbfaf7;
  --good: #1f7a5c; --bad: #c0392b; --odd: #b7791f; --late: #7d3c98; --wait: #2e86ab }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e1; --ground: #14191f } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 760px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
figure { margin: 1rem 0 } figcaption { font-weight: 600 } svg { max-width: 100% }
.axis { fill: none; stroke: var(--pale) } .tick, .name { font-size: 11px; fill: var(--pale) }
.name { text-anchor: middle; font-size: 9px }
.price { fill: none; stroke: var(--wait); stroke-width: 2 }
.allowed { fill: none; stroke: var(--bad); stroke-dasharray: 6 4 }
.count { fill: var(--wait) } .alert { fill: var(--bad) }
.right, .fate-counted { fill: var(--good) } .fate-dead { fill: var(--bad) }
.wrong { fill: none; stroke: var(--bad); stroke-width: 2 } .fate-late { fill: var(--late) }
.fate-duplicate { fill: var(--odd) } .fate-held { fill: var(--wait) }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left }
tr.off td { color: var(--bad) }
"""


class Shown(NamedTuple):
    """Everything that the page tells."""

    clicks: Sequence[tuple[int, str]]
    """When each click was made, in milliseconds since the beginning, and how it ended."""
    counts: Sequence[Count]
    alerts: Sequence[Alert]
    prices: Mapping[str, Sequence[tuple[int, int]]]
    priced: Sequence[Priced]


def page(shown: Shown) -> str:
    """The page's text."""
    off = [order for order in shown.priced if order.is_off]
    parts = [
        "<h1>What headrace made of careless producers</h1>",
        "<h2>Clicks: out of order, twice, late, unreadable</h2>",
        "<p>Half-way the sidecar was killed. Who lies below the line came late.</p>",
        clicks_plot(shown.clicks),
        legend(_FATES),
        counts_plot(shown.counts, shown.alerts),
        f"<p>Alerts by Spark: {len(shown.alerts)}.</p>",
        "<h2>Orders, and the prices they had</h2>",
        f"<p>{len(shown.priced)} orders; the raw join is wrong about {len(off)}.</p>",
        *_price_plots(shown),
        legend(_PRICES),
        _table(shown.priced),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>headrace demo</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _price_plots(shown: Shown) -> Iterable[str]:
    until_ms = max(order.at_ms for order in shown.priced) + 1_000
    for product, changes in sorted(shown.prices.items()):
        orders = [order for order in shown.priced if order.product == product]
        known = [change for change in changes if change[0] < until_ms]
        yield price_plot(product, known, orders, until_ms)


def _table(orders: Iterable[Priced]) -> str:
    rows = "".join(
        f"<tr{_off(order)}>"
        f"<td>{escape(order.order)}</td><td>{escape(order.product)}</td>"
        f"<td>{order.at_ms / 1_000:.1f} s</td><td>{money(order.price_cents)}</td>"
        f"<td>{' and '.join(map(money, order.at_once_cents))}</td></tr>"
        for order in orders
    )
    head = "".join(
        f"<th>{name}</th>" for name in ("order", "product", "time", "price then", "raw, at once")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _off(order: Priced) -> str:
    return ' class="off"' if order.is_off else ""
