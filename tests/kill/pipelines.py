"""The pipelines that are put to the test, and the settings that they run with.

Times are small, so that in a run of a minute windows close, ids are forgotten and records are late
all the time. Only the first operator sends late records to the late topic: what a later one sends
there would be mixed in by commit, and the order of the topic could not be foretold.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.contracts.pipeline import PipelineSpec, Sink, Source
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    ReorderPolicy,
    SuppressPolicy,
    Tumbling,
)

RAW = "raw"
CLEANED = "cleaned"
LATE = "cleaned.late"
DEAD = "cleaned.dead"
PROGRESS = "cleaned.progress"
_DAY_MS = 86_400_000


class Case(NamedTuple):
    """A pipeline, and what is known of it."""

    spec: PipelineSpec
    records_per_s: int
    """How much is fed: its oracle looks at everything again for every record."""
    row_life_ms: int | None
    """So long after its time, at most, a row of its state still counts.

    None where nobody knows: rows that only the changelog or only the disk has are not judged then.
    """


def _case(name: str, records_per_s: int, row_life_ms: int, *operators: AnyOperator) -> Case:
    spec = PipelineSpec(
        pipeline=name,
        source=Source(topic=RAW, max_future_ms=3_600_000),
        operators=operators,
        sink=Sink(topic=CLEANED),
    )
    return Case(spec, records_per_s, row_life_ms)


def _cases() -> list[Case]:
    by_key_and_id = DeduplicatePolicy(by="key+id", id="header.id", interval_ms=10_000)
    return [
        _case("deduplicate", 1_200, 20_002, by_key_and_id.model_copy(update={"late": "topic"})),
        _case(
            "chain",
            250,
            20_002,
            ReorderPolicy(grace_ms=3_000, late="topic"),
            by_key_and_id,
            SuppressPolicy(
                until="time-limit",
                limit_ms=4_000,
                buffer=BufferPolicy(records=60, when_full="emit-early"),
            ),
        ),
        _case(
            "count",
            100,
            8_000,
            AggregatePolicy(
                function="count", window=Tumbling(size_ms=5_000, grace_ms=3_000), late="topic"
            ),
            SuppressPolicy(until="window-closes"),
        ),
        # By id, records of all partitions meet in an order that nobody can foretell. No id is ever
        # forgotten here, so the ids that leave do not depend on it.
        _case(
            "by-id",
            300,
            70 * _DAY_MS,
            DeduplicatePolicy(by="id", id="header.id", interval_ms=60 * _DAY_MS),
        ),
    ]


CASES = {case.spec.pipeline: case for case in _cases()}
