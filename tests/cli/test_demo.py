"""`headrace demo` says what it does on a real broker, and what it says is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

from contracts.record import Record
from services.cli.demo_clicks import SEED, START_MS, clicks

ROOT = Path(__file__).parents[2]
COLUMNS = 80
GRACE_MS = 3_000
SIZE_MS = 10_000
Window = tuple[bytes, int]
"""A user, and when a window starts."""


def called() -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as narrow as a terminal may be."""
    return subprocess.run(
        [sys.executable, "-m", "services.cli", "demo"],
        cwd=ROOT,
        env={
            **os.environ,
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


def stream() -> list[Record]:
    """The records of the demo."""
    return list(clicks(Random(SEED)))


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


def test_what_it_prints_is_true() -> None:
    done = called()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= COLUMNS
    records = stream()

    _, *rows = rows_under("Where each record went", done.stdout)
    assert [row[0] for row in rows] == [str(record.offset) for record in records]
    verdicts = {cell for row in rows for cell in row[4:]}
    assert {"late", "held, forwarded", "merged", "held", "dead (undecodable)"} <= verdicts

    _, *rows = rows_under("final counts", done.stdout)
    assert printed_windows(rows) == recounted(records)

    head, row = rows_under("It adds up", done.stdout)
    fates = dict(zip(head, map(int, row), strict=True))
    assert fates["lost"] == 0
    assert fates["came in"] == len(records)
    assert sum(fates.values()) == 2 * len(records)
    assert fates["counted"] + fates["duplicate"] + fates["late"] + fates["dead"] + 1 == len(records)
