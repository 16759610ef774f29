"""The pipelines that come with headrace do what their first lines say."""

from __future__ import annotations

from pathlib import Path

from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, windowed_key
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Step
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

PIPELINES = Path(__file__).parents[2] / "docker" / "pipelines"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def run(name: str, *records: tuple[bytes, bytes, int]) -> Step:
    """An example over records of key, value and timestamp."""
    spec = load_pipeline(PIPELINES / f"{name}.yaml")
    chain = Chain(spec.operators, Overlay(MemoryStore(), spec.pipeline).view)
    topic = spec.source.topic
    batch = [
        Record(key, value, timestamp_ms, (), topic, 0, offset)
        for offset, (key, value, timestamp_ms) in enumerate(records)
    ]
    step = chain.process(Batch.of(batch))
    assert (step.dead, step.failure, chain.imbalance()) == ([], None, {})
    return step


def values(step: Step) -> list[bytes | None]:
    """Return the records for the cleaned topic."""
    return [record.value for record in step.forwarded.records]


def test_deduplicate() -> None:
    one, other = b'{"event_id": "1"}', b'{"event_id": "2"}'
    step = run("deduplicate", (b"k", one, 0), (b"k", one, 5), (b"k", other, 9), (b"l", one, 9))
    assert values(step) == [one, other, one]


def test_reorder() -> None:
    step = run(
        "reorder",
        (b"k", b"b", 2 * MINUTE_MS),
        (b"k", b"a", MINUTE_MS),
        (b"k", b"c", 7 * MINUTE_MS),
        (b"k", b"late", 0),
    )
    assert values(step) == [b"a", b"b"]
    assert [aside.record.value for aside in step.late] == [b"late"]


def test_suppress() -> None:
    step = run("suppress", (b"k", b"1", 0), (b"k", b"2", 9), (b"k", b"3", 10), (b"l", b"", 30_000))
    assert values(step) == [b"3"]


def test_chain() -> None:
    first, second = b'{"event_id": "1", "at": 1}', b'{"event_id": "1", "at": 2}'
    later = b'{"event_id": "2"}'
    step = run(
        "chain", (b"k", second, 2), (b"k", first, 1), (b"l", later, 70_000), (b"l", b"{}", 200_000)
    )
    assert values(step) == [first]


def test_alerts() -> None:
    quiet, busy = b"quiet", b"busy"
    step = run(
        "alerts",
        (quiet, b"", 10 * MINUTE_MS),
        *[(busy, b"", minute * MINUTE_MS) for minute in (20, 30, 59)],
        (quiet, b"", 70 * MINUTE_MS),
    )
    window = WindowBounds("tumbling", 0, HOUR_MS)
    # A row of the table that is not there may be said again not to be there.
    alerts = [record for record in step.forwarded.records if record.value is not None]
    assert [record.key for record in alerts] == [windowed_key(quiet, window)]
    assert [record.value for record in alerts] == [(1).to_bytes(8)]
