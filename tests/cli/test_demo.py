"""`headrace demo` says what it does, and what it says is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from contracts.decision import Verdict
from contracts.record import Record
from contracts.window import plain_key, window_of
from services.cli.demo import clicks, run

ROOT = Path(__file__).parents[2]
SEED = 7
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


@cache
def first_call() -> subprocess.CompletedProcess[str]:
    """One call for all tests that only read it."""
    return called()


def rows_under(title: str) -> list[list[str]]:
    """The cells of a printed table, head and all."""
    lines = first_call().stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip() == title)
    rows = []
    for line in lines[first + 1 :]:
        if line.startswith(("\u2503", "\u2502")):
            rows.append(
                [cell.strip() for cell in line.replace("\u2503", "\u2502").split("\u2502")[1:-1]]
            )
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


def final_counts(left: list[Record]) -> dict[Window, int]:
    """What left, by user and window."""
    counts = {}
    for record in left:
        window = window_of(record.headers)
        assert window is not None
        assert record.key is not None
        place = plain_key(record.key, window), window.start_ms
        assert place not in counts, "two final counts for one window"
        counts[place] = int.from_bytes(record.value or b"", "big")
    return counts


def test_it_ends_well_and_says_nothing_on_the_side() -> None:
    done = first_call()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Traceback" not in done.stdout


def test_it_says_the_same_on_every_run() -> None:
    assert called().stdout == first_call().stdout


def test_it_fits_a_narrow_terminal() -> None:
    lines = first_call().stdout.splitlines()
    assert max(map(len, lines)) <= COLUMNS


def test_nothing_is_lost() -> None:
    head, *rows = rows_under("It adds up")
    assert head[-1] == "lost"
    assert [row[-1] for row in rows] == ["0"] * 4


def test_every_row_adds_up() -> None:
    head, *rows = rows_under("It adds up")
    for row in rows:
        numbers = dict(zip(head[1:], map(int, row[1:]), strict=True))
        assert numbers.pop("lost") == 0
        assert numbers.pop("taken") == sum(numbers.values())


def test_the_first_operator_takes_every_record() -> None:
    _, first, *_ = rows_under("It adds up")
    assert first[:2] == ["reorder", str(len(stream()))]


def test_every_record_has_a_line() -> None:
    _, *rows = rows_under("Where each record went")
    assert [row[0] for row in rows] == [str(record.offset) for record in stream()]


def test_the_counts_are_those_of_a_count_by_hand(tmp_path: Path) -> None:
    records = stream()
    _, left, _ = run(records, tmp_path)
    assert final_counts(left) == recounted(records)
    _, *rows = rows_under("What left: final counts")
    assert [int(row[-1]) for row in rows] == list(final_counts(left).values())


def test_other_streams_are_counted_right_too(tmp_path: Path) -> None:
    for seed in range(40):
        records = list(clicks(Random(seed)))
        _, left, totals = run(records, tmp_path / str(seed))
        assert final_counts(left) == recounted(records), f"seed {seed}"
        assert [counts.balance() for counts in totals] == [0, 0, 0, 0]


def test_the_stream_shows_all_that_can_go_wrong(tmp_path: Path) -> None:
    records = stream()
    decisions, _, totals = run(records, tmp_path)
    verdicts = {(decision.operator, decision.verdict) for decision in decisions}
    assert ("reorder", Verdict.LATE) in verdicts
    assert ("deduplicate", Verdict.DROPPED) in verdicts
    assert ("deduplicate", Verdict.DEAD) in verdicts
    assert ("aggregate", Verdict.MERGED) in verdicts
    assert totals[0].held == 1
