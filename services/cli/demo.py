"""`headrace demo`: a real broker, a sidecar that is killed half-way, and where each record went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.decision import Reason, Verdict
from contracts.errors import DemoFailed
from contracts.record import Record
from contracts.topics import decisions_topic
from contracts.window import plain_key, window_of
from services.broker.embedded import EmbeddedBroker
from services.broker.prepare import prepare
from services.cli.demo_clicks import (
    CLEANED,
    OPERATORS,
    PIPELINE_TEXT,
    SEED,
    START_MS,
    TOPIC,
    clicks,
)
from services.runtime.records import committed_offsets, make_topic, read_records, write_records
from services.settings import Settings, read_settings

_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.1
_STYLES = {
    Verdict.FORWARDED: "green",
    Verdict.DROPPED: "yellow",
    Verdict.MERGED: "green",
    Verdict.LATE: "magenta",
    Verdict.DEAD: "red",
    Verdict.HELD: "cyan",
}


class Decided(NamedTuple):
    """One line of the decisions topic."""

    operator: str
    verdict: Verdict
    reason: Reason
    evidence: dict[str, Any]


Journeys = dict[int, dict[str, list[Decided]]]
"""By source offset and operator, what was decided about a record."""


def demo() -> None:
    """Run a small pipeline on a real broker, kill it half-way, and show where each record went."""
    console = Console(highlight=False)
    # The same stream each time; nobody's secret depends on it.
    records = list(clicks(Random(SEED)))  # noqa: S311
    with TemporaryDirectory(prefix="headrace-demo-") as name:
        folder = Path(name)
        with _broker(folder, console) as settings:
            _tell(console, len(records))
            run(records, settings, folder)
            journeys = read_journeys(settings)
            cleaned = read_records(settings, CLEANED)
    console.print(_table_of(records, journeys))
    console.print(_results(cleaned))
    console.print(_sum(records, journeys))


def run(records: list[Record], settings: Settings, folder: Path) -> None:
    """Half of the records, a kill, the other half, and a new sidecar that goes on."""
    pipeline = folder / "demo.yaml"
    pipeline.write_text(PIPELINE_TEXT, encoding="utf-8")
    make_topic(settings, TOPIC, 1)
    half = len(records) // 2
    write_records(settings, records[:half])
    with _sidecar(pipeline, settings) as first:
        _until(lambda: committed_offsets(settings, "demo").get(0, 0) > 0, first)
        write_records(settings, records[half:])
        first.kill()
    with _sidecar(pipeline, settings) as second:
        _until(lambda: committed_offsets(settings, "demo").get(0, 0) >= len(records), second)


@contextmanager
def _broker(folder: Path, console: Console) -> Iterator[Settings]:
    with console.status("starting a Kafka broker") as status:
        prepare(lambda step: status.update(f"preparing Kafka, once: {step}"))
        status.update("starting a Kafka broker")
        broker = EmbeddedBroker(folder / "broker")
        broker.start()
    try:
        yield read_settings(
            bootstrap_servers=broker.bootstrap_servers, state_folder=folder / "state"
        )
    finally:
        broker.stop()


@contextmanager
def _sidecar(pipeline: Path, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace run` in a process of its own."""
    environment = {
        **os.environ,
        "HEADRACE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "HEADRACE_STATE_FOLDER": str(settings.state_folder),
        "HEADRACE_DECISIONS": "true",
        "HEADRACE_LOG_LEVEL": "error",
        # A session of the shortest kind: who was killed is missed sooner.
        "HEADRACE_SESSION_TIMEOUT": "6s",
    }
    command = [sys.executable, "-m", "services.cli", "run", str(pipeline)]
    process = subprocess.Popen(command, env=environment)  # noqa: S603 - our own command
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_WITHIN_S)


def _until(is_so: Callable[[], bool], sidecar: subprocess.Popen[bytes]) -> None:
    give_up_at_s = time.monotonic() + _WITHIN_S
    while not is_so():
        if sidecar.poll() is not None:
            message = f"the sidecar ended by itself, with exit code {sidecar.returncode}; see above"
            raise DemoFailed(message)
        if time.monotonic() > give_up_at_s:
            message = f"the sidecar did not come to an end within {_WITHIN_S:.0f} s; try again"
            raise DemoFailed(message)
        time.sleep(_LOOK_EVERY_S)


def read_journeys(settings: Settings) -> Journeys:
    """What the decisions topic says about each record of the source."""
    journeys: Journeys = {}
    for record in read_records(settings, decisions_topic(CLEANED).name):
        fields = json.loads(record.value or b"")
        if fields["topic"] == TOPIC and fields["offset"] is not None:
            of_record = journeys.setdefault(fields["offset"], {})
            decided = Decided(
                fields["operator"],
                Verdict(fields["verdict"]),
                Reason(fields["reason"]),
                fields["evidence"],
            )
            of_record.setdefault(decided.operator, []).append(decided)
    return journeys


def _tell(console: Console, count: int) -> None:
    console.print(
        f"{count} clicks of three users: some came twice, some late, one is not JSON.\n"
        "The pipeline puts them in order, throws out duplicates, counts each user's\n"
        "clicks in windows of 10 s, and lets a count go when it is final. Half-way the\n"
        "sidecar is killed (SIGKILL), and a new one goes on from what was committed.\n"
    )


def _table_of(records: list[Record], journeys: Journeys) -> Table:
    """A line a record: what each operator decided about it."""
    table = Table(
        "offset", "user", "time", "event", *OPERATORS, padding=0, title="Where each record went"
    )
    for offset, record in enumerate(records):
        cells = [_cell(journeys.get(offset, {}).get(name, [])) for name in OPERATORS]
        at = f"{(record.timestamp_ms - START_MS) / 1_000:.1f}s"
        event = (record.value or b"").decode().removeprefix('{"event_id": "').removesuffix('"}')
        table.add_row(str(offset), (record.key or b"").decode(), at, event, *cells)
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


def _results(cleaned: list[Record]) -> Table:
    table = Table("user", "window", "clicks", title=f"What left, in {CLEANED}: final counts")
    for record in cleaned:
        window = window_of(record.headers)
        if window is None or record.key is None or record.value is None:
            message = f"a count without a window left: {record}"
            raise AssertionError(message)
        start, end = ((at_ms - START_MS) // 1_000 for at_ms in (window.start_ms, window.end_ms))
        user = plain_key(record.key, window).decode()
        table.add_row(user, f"{start}s to {end}s", str(int.from_bytes(record.value, "big")))
    return table


def fates(records: list[Record], journeys: Journeys) -> Counter[str]:
    """How many records ended how; `lost` for those of which nobody speaks."""
    counts: Counter[str] = Counter()
    for offset in range(len(records)):
        stations = [journeys.get(offset, {}).get(name, []) for name in OPERATORS]
        last = next((decisions[-1] for decisions in reversed(stations) if decisions), None)
        if last is None or last.verdict is Verdict.FORWARDED:
            counts["lost"] += 1
        elif last.verdict is Verdict.MERGED:
            counts["counted"] += 1
        elif last.reason is Reason.DUPLICATE:
            counts["duplicate"] += 1
        else:
            counts[str(last.verdict)] += 1
    return counts


def _sum(records: list[Record], journeys: Journeys) -> Table:
    """What came in is what went somewhere."""
    counts = fates(records, journeys)
    names = ("counted", "duplicate", "late", "dead", "held", "lost")
    table = Table("came in", *names, title="It adds up")
    table.add_row(str(len(records)), *(str(counts[name]) for name in names))
    return table
