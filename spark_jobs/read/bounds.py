"""Bound how much of each topic a micro-batch takes: memory is bounded, and topics stay in step.

Spark only counts offsets, so a bound in bytes becomes one in records by the weight of the last
ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark_jobs.read.source import Place, Source

_SAMPLE = 100
"""How many of the last offsets of each partition are weighed."""
_LEAST = 10
"""A topic with few records may still bring a tenth of what it could bring alone."""


class Size(NamedTuple):
    """How many records a topic has, and their weight."""

    records: int
    record_bytes: int | None
    """The average weight of a record; None if there is none to weigh."""


def bounds_of(
    sizes: Mapping[str, Size], batch_records: int | None, batch_bytes: int | None
) -> dict[str, int]:
    """Return, by topic, how many records a micro-batch takes; topics without a bound are left out.

    All topics are read in equally many micro-batches, so that none is read far ahead of another.
    """
    most: dict[str, int] = {}
    for topic, size in sizes.items():
        limits = [] if batch_records is None else [batch_records]
        if batch_bytes is not None and size.record_bytes is not None:
            limits.append(batch_bytes // max(size.record_bytes, 1))
        if limits:
            most[topic] = max(min(limits), 1)
    batches = max((sizes[topic].records / bound for topic, bound in most.items()), default=0)
    if batches <= 1:
        return most
    return {
        topic: max(ceil(sizes[topic].records / batches), bound // _LEAST, 1)
        for topic, bound in most.items()
    }


def sizes_of(
    spark: SparkSession, source: Source, firsts: Mapping[Place, int], ends: Mapping[Place, int]
) -> dict[str, Size]:
    """Return the size of each topic, from the first and end offsets of its partitions."""
    sizes: dict[str, Size] = {}
    for topic in {topic for topic, _ in ends}:
        own = {place: end for place, end in ends.items() if place[0] == topic}
        records = sum(end - firsts[place] for place, end in own.items())
        weighed = {place: max(firsts[place], end - _SAMPLE) for place, end in own.items()}
        sizes[topic] = Size(records, _weigh(spark, source, weighed, own) if records else None)
    return sizes


def _weigh(
    spark: SparkSession, source: Source, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> int | None:
    topic = next(iter(starts))[0]
    key, value = (F.coalesce(F.length(name), F.lit(0)) for name in ("key", "value"))
    (found,) = (
        spark.read.format("kafka")
        .options(**source.described())
        .option("assign", json.dumps({topic: [partition for _, partition in starts]}))
        .option("startingOffsets", _offsets(topic, starts))
        .option("endingOffsets", _offsets(topic, ends))
        .load()
        .select(F.avg(key + value).alias("weight"))
        .collect()
    )
    return None if found.weight is None else ceil(found.weight)


def _offsets(topic: str, offsets: Mapping[Place, int]) -> str:
    return json.dumps({topic: {str(partition): at for (_, partition), at in offsets.items()}})
