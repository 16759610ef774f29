"""`headrace demo` says what it does on a real broker, and what it says is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.contracts.record import Record
from headrace.services.cli.demo.clicks import START_MS
from headrace.services.cli.demo.command import made_streams
from headrace.services.cli.demo.orders import END
from tests.cli.browser import BROWSERS, opened

pytestmark = pytest.mark.long("users", why="it runs the whole demo")

ROOT = Path(__file__).parents[2]
COLUMNS = 80
GRACE_MS = 3_000
SIZE_MS = 10_000
MOST = 4
Window = tuple[bytes, int]
"""A user, and when a window starts."""


def called(page: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as narrow as a terminal may be."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.services.cli", "demo", "--page-file", str(page)],
        cwd=ROOT,
        env={
            **os.environ,
            # The demo has a broker of its own, whatever the user's installation has.
            "HEADRACE_SECURITY_PROTOCOL": "SSL",
            "HEADRACE_HTTP_PORT": "8080",
            "COLUMNS": str(COLUMNS),
            "PYTHONIOENCODING": "utf-8",
            "NO_COLOR": "1",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def rows_under(title: str, printed: str) -> list[list[str]]:
    """The cells of a printed table, head and all."""
    lines = printed.splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip() == title)
    rows = []
    for line in lines[first + 1 :]:
        if line.startswith(("\u2503", "\u2502")):
            cells = line.replace("\u2503", "\u2502").split("\u2502")[1:-1]
            rows.append([cell.strip() for cell in cells])
        elif line.startswith("\u2514"):
            break
    return rows


def recounted(records: list[Record]) -> dict[Window, int]:
    """Final counts as one would count by hand; the whole stream is within one interval."""
    on_time, time_ms = [], -1
    for record in records:
        if record.timestamp_ms >= time_ms - GRACE_MS:
            on_time.append(record)
        time_ms = max(time_ms, record.timestamp_ms)
    left = [record for record in on_time if record.timestamp_ms <= time_ms - GRACE_MS]
    ordered = sorted(left, key=lambda record: (record.timestamp_ms, record.key))
    seen: set[tuple[bytes | None, str]] = set()
    counts: Counter[Window] = Counter()
    counted_through_ms = -1
    for record in ordered:
        event = event_of(record)
        if event is None or record.key is None or (record.key, event) in seen:
            continue
        seen.add((record.key, event))
        counts[record.key, record.timestamp_ms // SIZE_MS * SIZE_MS] += 1
        counted_through_ms = record.timestamp_ms
    return {
        (key, start_ms): count
        for (key, start_ms), count in counts.items()
        if start_ms + SIZE_MS <= counted_through_ms
    }


def event_of(record: Record) -> str | None:
    """The id of an event; None for what is no JSON."""
    try:
        found: str = json.loads(record.value or b"")["event_id"]
    except json.JSONDecodeError:
        return None
    return found


def printed_windows(rows: list[list[str]]) -> dict[Window, int]:
    """The final counts as they are printed, each window once."""
    counts = {}
    for user, window, count in rows:
        place = user.encode(), START_MS + int(window.split("s")[0]) * 1_000
        assert place not in counts, "two final counts for one window"
        counts[place] = int(count)
    return counts


def prices_then() -> dict[str, tuple[str, str]]:
    """Each order once: its product, and what that cost at the order's time."""
    _, orders, prices = made_streams()
    found = {}
    for order in orders:
        known = [
            price
            for price in prices
            if price.key == order.key and price.timestamp_ms <= order.timestamp_ms
        ]
        cents = field(max(known, key=lambda price: price.timestamp_ms), "price_cents")
        found[field(order, "order_id")] = ((order.key or b"").decode(), f"{cents / 100:.2f}")
    return {name: price for name, price in found.items() if name != END}


def field(record: Record, name: str) -> Any:
    """A field of a record's value."""
    return json.loads(record.value or b"")[name]


class Demo(NamedTuple):
    """The output of a demonstration."""

    printed: str
    page: Path


def test_the_demo_prints_and_shows_the_truth(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = called(page)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    demo = Demo(done.stdout, page)
    clicks_are_told_as_they_are(demo)
    orders_have_their_prices_behind_the_sidecars_alone(demo)
    # Where no browser is, the page is not looked at; CI installs one.
    if BROWSERS:
        the_page_opens(demo, tmp_path)


def clicks_are_told_as_they_are(demo: Demo) -> None:
    """The tables of the first half."""
    *tables, where = demo.printed.splitlines()
    assert max(map(len, tables)) <= COLUMNS
    assert where.endswith(demo.page.as_uri())
    records = made_streams().clicks

    _, *rows = rows_under("Where each record went", demo.printed)
    assert [row[0] for row in rows] == [str(record.offset) for record in records]
    verdicts = {cell for row in rows for cell in row[4:]}
    assert {"late", "held, forwarded", "merged", "held", "dead (undecodable)"} <= verdicts

    _, *rows = rows_under("final counts", demo.printed)
    counted = printed_windows(rows)
    assert counted == recounted(records)

    head, row = rows_under("It adds up", demo.printed)
    fates = dict(zip(head, map(int, row), strict=True))
    assert fates["lost"] == 0
    assert fates["came in"] == len(records)
    assert sum(fates.values()) == 2 * len(records)
    assert fates["counted"] + fates["duplicate"] + fates["late"] + fates["dead"] + 1 == len(records)

    _, *rows = rows_under("Alerts: too many clicks", demo.printed)
    alerted = printed_windows([row[:3] for row in rows])
    assert alerted == {place: count for place, count in counted.items() if count > MOST}
    assert alerted


def orders_have_their_prices_behind_the_sidecars_alone(demo: Demo) -> None:
    """The tables of the second half."""
    title = "Orders and the prices they had"
    _, *rows = rows_under(title, demo.printed)
    right = {order: (product, price) for order, product, _, price, _ in rows}
    assert right == prices_then()
    assert len(rows) == len(right)
    doubled = [row for row in rows if row[4].endswith("(counted twice)")]
    wrong = [row for row in rows if row[3] not in row[4]]
    assert doubled
    assert wrong

    _, behind, raw = rows_under("And in sum", demo.printed)
    assert behind[1:4] == [str(len(rows)), "0", "0"]
    assert int(raw[2]) == len(doubled)
    assert int(raw[3]) >= len(wrong)
    assert behind[4] != raw[4]


def the_page_opens(demo: Demo, tmp_path: Path) -> None:
    """As a browser shows it."""
    shown = opened(demo.page, tmp_path)
    assert shown.count("<svg") > 5
    assert shown.count('class="right"') >= len(prices_then())
    assert 'class="wrong"' in shown
    assert 'class="alert"' in shown
