"""The demo's results as tables for a terminal of eighty columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.record import Record
from headrace.services.cli.demo.clicks import CLEANED, OPERATORS, START_MS
from headrace.services.cli.demo.counted import Count, Decided, Journeys, fates
from headrace.services.cli.demo.priced import Alert, Priced, money

_STYLES = {
    Verdict.FORWARDED: "green",
    Verdict.DROPPED: "yellow",
    Verdict.MERGED: "green",
    Verdict.LATE: "magenta",
    Verdict.DEAD: "red",
    Verdict.HELD: "cyan",
}
_FATES = ("counted", "duplicate", "late", "dead", "held", "lost")


def journeys_table(records: Sequence[Record], journeys: Journeys) -> Table:
    """A line a click: what each operator decided about it."""
    table = Table(
        "offset", "user", "time", "event", *OPERATORS, padding=0, title="Where each record went"
    )
    for offset, record in enumerate(records):
        cells = [_cell(journeys.get(offset, {}).get(name, [])) for name in OPERATORS]
        at = f"{(record.timestamp_ms - START_MS) / 1_000:.1f}s"
        event = (record.value or b"").decode().removeprefix('{"event_id": "').removesuffix('"}')
        table.add_row(str(offset), (record.key or b"").decode(), at, event, *cells)
    return table


def counts_table(counts: Iterable[Count]) -> Table:
    """Return a table of the final counts."""
    table = Table("user", "window", "clicks", title=f"What left, in {CLEANED}: final counts")
    for count in counts:
        table.add_row(count.user, f"{count.from_s}s to {count.to_s}s", str(count.clicks))
    return table


def sum_table(records: Sequence[Record], journeys: Journeys) -> Table:
    """Return a table that compares the records that came in with where they went."""
    found = fates(records, journeys)
    table = Table("came in", *_FATES, title="It adds up")
    table.add_row(str(len(records)), *(str(found[name]) for name in _FATES))
    return table


def priced_table(orders: Iterable[Priced]) -> Table:
    """A line an order: the price it had, and what a join of the raw topics says at once."""
    table = Table(
        "order",
        "product",
        "time",
        "price then",
        "raw, at once",
        padding=0,
        title="Orders and the prices they had",
    )
    for order in orders:
        raw = " and ".join(money(cents) for cents in order.at_once_cents) or "missing"
        words = f"{raw}{' (counted twice)' if order.is_doubled else ''}"
        style = "red" if order.is_off else "green"
        table.add_row(
            order.order,
            order.product,
            f"{order.at_ms / 1_000:.1f}s",
            money(order.price_cents),
            Text(words, style=style),
        )
    return table


def totals_table(orders: Sequence[Priced]) -> Table:
    """Return a table of the turnover that each way finds."""
    table = Table("", "orders", "counted twice", "wrong price", "turnover", title="And in sum")
    right = sum(order.quantity * order.price_cents for order in orders)
    raw = sum(order.quantity * cents for order in orders for cents in order.at_once_cents)
    table.add_row("behind the sidecars", str(len(orders)), "0", "0", money(right))
    doubled = sum(order.is_doubled for order in orders)
    mispriced = sum(order.is_mispriced for order in orders)
    rows = sum(len(order.at_once_cents) for order in orders)
    table.add_row("raw, at once", str(rows), str(doubled), str(mispriced), money(raw))
    return table


def alerts_table(alerts: Iterable[Alert]) -> Table:
    """Windows with too many clicks."""
    table = Table("user", "window", "clicks", "allowed", title="Alerts: too many clicks")
    for alert in alerts:
        window = f"{alert.from_s}s to {alert.to_s}s"
        table.add_row(alert.user, window, str(alert.clicks), str(alert.most))
    return table


def _cell(decisions: Sequence[Decided]) -> Text:
    """The final verdict, and what made it so."""
    if not decisions:
        return Text("")
    last = decisions[-1]
    words = str(last.verdict)
    if last.reason is Reason.DUPLICATE:
        words += f" (as {last.evidence['first_offset']})"
    elif last.verdict is Verdict.DEAD:
        words += f" ({last.reason})"
    elif len(decisions) > 1:
        words = f"held, {words}"
    return Text(words, style=_STYLES[last.verdict])
