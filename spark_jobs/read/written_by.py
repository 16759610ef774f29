"""Find the pipeline that writes a cleaned topic, and check that the job relies on that one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import TopicRefused
from headrace.contracts.progress import LAYOUT, PIPELINE_KEY, CleanedBy, read_cleaned_by
from headrace.contracts.topics import progress_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark_jobs.read.source import Brokers, Source

_STRETCH = 1_000
_LONGER = 8
"""How many times longer each further stretch is, in the search from the end of a topic."""


@dataclass(frozen=True)
class CleanedTopic:
    """One input of a job, and the pipeline that the job relies on."""

    input: int
    """Its number; on ties the lowest goes first, so tables stand before streams."""
    topic: str
    pipeline: str | None = None
    """The pipeline that must have written it; None if no sidecar did, and it has no progress."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """The options that the job relies on in the pipeline's file."""


def find_pipeline(
    spark: SparkSession, source: Source, brokers: Brokers, topic: CleanedTopic
) -> CleanedBy | None:
    """Find the last pipeline that a topic names as its writer, None if it names none yet.

    A sidecar writes its name once a start, so the row may be anywhere; the search begins at the
    end.
    """
    place = progress_topic(topic.topic).name, 0
    (first,) = brokers.offsets([place], "earliest").values()
    (end,) = brokers.offsets([place], "latest").values()
    stretch = _STRETCH
    while end > first:
        start = max(first, end - stretch)
        found = _last_row(spark, source, place[0], start, end)
        if found is not None:
            return found
        end, stretch = start, stretch * _LONGER
    return None


def _last_row(
    spark: SparkSession, source: Source, topic: str, start: int, end: int
) -> CleanedBy | None:
    rows = (
        spark.read.format("kafka")
        .options(**source.described())
        .option("assign", json.dumps({topic: [0]}))
        .option("startingOffsets", json.dumps({topic: {"0": start}}))
        .option("endingOffsets", json.dumps({topic: {"0": end}}))
        .load()
        .where(F.col("key") == F.lit(PIPELINE_KEY))
        .orderBy(F.col("offset").desc())
        .limit(1)
        .collect()
    )
    return read_cleaned_by(bytes(rows[0].key), bytes(rows[0].value)) if rows else None


def verify(topic: CleanedTopic, found: CleanedBy | None) -> None:
    """Refuse a topic that another pipeline writes than the job expects."""
    if found is None:
        raise _refusal(topic, "does not say which pipeline writes it", "start its sidecar first")
    if found.layout > LAYOUT:
        raise _refusal(
            topic, f"is written by a newer headrace (layout {found.layout})", "upgrade this"
        )
    if found.pipeline != topic.pipeline:
        what = f"is written by the pipeline `{found.pipeline}`, not by `{topic.pipeline}`"
        raise _refusal(topic, what, "name the right one in the job")
    for path, wanted, said in _differences(topic.expected, found.spec, ""):
        what = f"is written with `{path}: {said}`, and this job relies on `{wanted}`"
        raise _refusal(topic, what, "change the pipeline or the job")


def _differences(wanted: Any, said: Any, path: str) -> list[tuple[str, Any, Any]]:
    """Return the paths at which a pipeline's options differ from the wanted ones."""
    if isinstance(wanted, Mapping) and isinstance(said, Mapping):
        return [
            each
            for name, inner in wanted.items()
            for each in _differences(inner, said.get(name), f"{path}.{name}".lstrip("."))
        ]
    if isinstance(wanted, list) and isinstance(said, list) and len(wanted) == len(said):
        return [
            each
            for number, (inner, other) in enumerate(zip(wanted, said, strict=True))
            for each in _differences(inner, other, f"{path}.{number}")
        ]
    return [] if wanted == said else [(path, wanted, said)]


def _refusal(topic: CleanedTopic, what: str, advice: str) -> TopicRefused:
    return TopicRefused(f"the topic `{topic.topic}` {what}; {advice}")
