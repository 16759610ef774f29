"""`headrace demo`: a small pipeline over a small stream, and where each record went.

Everything is real but Kafka: the operators, their state on disk, and the commits, between two of
which the service is stopped and a new one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.decision import Decision, Reason, Verdict
from contracts.pipeline import PipelineSpec, Sink, Source
from contracts.policies import (
    AggregatePolicy,
    DeduplicatePolicy,
    ReorderPolicy,
    SuppressPolicy,
    Tumbling,
)
from contracts.record import Record
from contracts.window import plain_key, window_of
from services.intake.timestamps import Timestamps
from services.operators.chain import Chain
from services.operators.operator import Counts, Step
from services.state.overlay import Overlay
from services.state.rocks import RocksMemory, RocksStore

PIPELINE = PipelineSpec(
    pipeline="demo",
    source=Source(topic="clicks.raw"),
    operators=(
        ReorderPolicy(grace_ms=3_000, late="topic"),
        DeduplicatePolicy(by="key+id", id="value.event_id", interval_ms=60_000),
        AggregatePolicy(function="count", window=Tumbling(size_ms=10_000, grace_ms=0)),
        SuppressPolicy(until="window-closes"),
    ),
    sink=Sink(topic="clicks.cleaned"),
)
_START_MS = 1_700_000_000_000
_CLICKS = 40
_SEED = 7
_BATCH_RECORDS = 8
_MEMORY_BYTES = 32 << 20
_STYLES = {
    Verdict.FORWARDED: "green",
    Verdict.DROPPED: "yellow",
    Verdict.MERGED: "green",
    Verdict.LATE: "magenta",
    Verdict.DEAD: "red",
    Verdict.HELD: "cyan",
}


def demo() -> None:
    """Run a small pipeline over a generated stream, and print where each record went."""
    console = Console(highlight=False)
    # The same stream each time; nobody's secret depends on it.
    records = list(clicks(Random(_SEED)))  # noqa: S311
    console.print(
        f"{len(records)} clicks of three users: some came twice, some late, one is not JSON.\n"
        "The pipeline puts them in order, throws out duplicates, counts each user's\n"
        "clicks in windows of 10 s, and lets a count go when it is final. Half-way the\n"
        "service is stopped, and a new one goes on with the state on disk.\n"
    )
    with TemporaryDirectory(prefix="headrace-demo-") as folder:
        decisions, left, counts = run(records, Path(folder))
    console.print(_journeys(records, decisions))
    console.print(_results(left))
    console.print(_balance(counts))


def clicks(random: Random) -> Iterator[Record]:
    """Clicks of three users, one a second, as a careless producer sends them."""
    sent: list[tuple[bytes, bytes, int]] = []
    for number in range(_CLICKS):
        key = random.choice([b"ada", b"bob", b"eve"])
        timestamp_ms = _START_MS + number * 1_000
        value = b'{"event_id": "e%d"}' % number
        (mishap,) = random.choices(("none", "twice", "disorder", "late"), (58, 15, 20, 7))
        if mishap == "twice" and sent:
            key, value, timestamp_ms = random.choice(sent[-5:])
        elif mishap == "disorder":
            timestamp_ms -= random.randrange(500, 3_000)
        elif mishap == "late":
            timestamp_ms -= random.randrange(6_000, 9_000)
        if number == _CLICKS // 3:
            value = b"not json"
        sent.append((key, value, timestamp_ms))
        yield Record(key, value, max(timestamp_ms, _START_MS), (), "clicks.raw", 0, number)
    yield Record(b"ada", b'{"event_id": "last"}', _START_MS + 60_000, (), "clicks.raw", 0, _CLICKS)


def run(records: list[Record], folder: Path) -> tuple[list[Decision], list[Record], list[Counts]]:
    """Take the records through the pipeline, by two services, one after the other."""
    memory = RocksMemory(_MEMORY_BYTES)
    decisions: list[Decision] = []
    left: list[Record] = []
    totals: list[Counts] = []
    half = len(records) // 2
    for part in (records[:half], records[half:]):
        # A new instance finds everything in the folder: stream time, held records, known ids.
        store = RocksStore(folder / "0", memory)
        overlay = Overlay(store, PIPELINE.pipeline)
        chain = Chain(PIPELINE.operators, overlay.view, explain=True)
        for step in _steps(part, chain):
            decisions += step.decisions
            left += step.forwarded.records
            chain.save()
            overlay.commit({"clicks.raw": part[-1].offset or 0})
        store.close()
        totals = _added(totals, [operator.counts for operator in chain.operators])
    return decisions, left, totals


def _steps(records: list[Record], chain: Chain) -> Iterator[Step]:
    timestamps = Timestamps(PIPELINE.source)
    for first in range(0, len(records), _BATCH_RECORDS):
        part = records[first : first + _BATCH_RECORDS]
        batch, _ = timestamps.take(part, now_ms=_START_MS)
        yield chain.process(batch)


def _added(before: list[Counts], after: list[Counts]) -> list[Counts]:
    """The counts of two lives of the same operators."""
    for earlier, counts in zip(before, after, strict=False):
        counts.held_before = earlier.held_before
        counts.taken += earlier.taken
        counts.forwarded += earlier.forwarded
        counts.merged += earlier.merged
        counts.late += earlier.late
        counts.dead += earlier.dead
        counts.emitted += earlier.emitted
        for reason, dropped in earlier.dropped.items():
            counts.drop(reason, dropped)
    return after


def _journeys(records: list[Record], decisions: list[Decision]) -> Table:
    """A line a record: what each operator decided about it."""
    names = [policy.name or policy.kind for policy in PIPELINE.operators][:3]
    table = Table(
        "offset", "user", "time", "event", *names, padding=0, title="Where each record went"
    )
    found: dict[tuple[int | None, str], list[Decision]] = {}
    for decision in decisions:
        found.setdefault((decision.record.offset, decision.operator), []).append(decision)
    for record in records:
        cells = [_cell(found.get((record.offset, name), [])) for name in names]
        time = f"{(record.timestamp_ms - _START_MS) / 1_000:.1f}s"
        event = (record.value or b"").decode().removeprefix('{"event_id": "').removesuffix('"}')
        table.add_row(str(record.offset), (record.key or b"").decode(), time, event, *cells)
    return table


def _cell(decisions: list[Decision]) -> Text:
    """The final verdict, and what made it so."""
    if not decisions:
        return Text("")
    last = decisions[-1]
    words = str(last.verdict)
    if last.reason is Reason.DUPLICATE:
        words += f" (as {dict(last.evidence)['first_offset']})"
    elif last.verdict is Verdict.DEAD:
        words += f" ({last.reason})"
    elif len(decisions) > 1:
        words = f"held, {words}"
    return Text(words, style=_STYLES[last.verdict])


def _results(left: list[Record]) -> Table:
    table = Table("user", "window", "clicks", title="What left: final counts")
    for record in left:
        window = window_of(record.headers)
        if window is None or record.key is None or record.value is None:
            message = f"a count without a window left: {record}"
            raise AssertionError(message)
        start, end = ((at_ms - _START_MS) // 1_000 for at_ms in (window.start_ms, window.end_ms))
        user = plain_key(record.key, window).decode()
        table.add_row(user, f"{start}s to {end}s", str(int.from_bytes(record.value, "big")))
    return table


def _balance(totals: list[Counts]) -> Table:
    """What came in is what went out, at every operator."""
    table = Table(
        "operator", "taken", "forwarded", "dropped", "merged", "late", "dead", "held", "lost",
        title="It adds up", padding=0,
    )  # fmt: skip
    for policy, counts in zip(PIPELINE.operators, totals, strict=True):
        dropped = sum(counts.dropped.values())
        numbers = (
            counts.taken, counts.forwarded, dropped, counts.merged, counts.late, counts.dead,
            counts.held, counts.balance(),
        )  # fmt: skip
        table.add_row(policy.name, *map(str, numbers))
    return table
