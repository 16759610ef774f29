"""A line of the table of metrics: name, kind, help, whose name it mirrors, and where it comes from.

Labels are bounded: a pipeline has so many hops and operators, a topic so many partitions, a verdict
so many reasons. Never a key, never a value. Times are in seconds, as Prometheus has them. Where a
name is Kafka's (KIP-328 and the rest of Kafka Streams and its clients) it is spelt as Prometheus
spells names, and `mirrors` has it as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from headrace.services.observe.histogram import HistogramSnapshot
from headrace.services.observe.readings import Reading
from headrace.services.observe.snapshot import TaskSnapshot

Of = TypeVar("Of")

PIPELINE = "pipeline"
TASK_LABELS = ("hop", "topic", "partition")
OPERATOR_LABELS = (*TASK_LABELS, "operator")
HISTOGRAM_LABELS = ("hop",)


@dataclass(frozen=True, slots=True)
class Metric(Generic[Of]):
    """One family of series."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    read: Callable[[Of], Reading]
    """Of a counter whole numbers, which add up to the same in any order."""
    by: str | None = None
    """A label of its own, beside those of what it is read from."""
    mirrors: str | None = None
    """Kafka's name for it."""
    divisor: int = 1
    """Units that are read in one unit of the name: 1000 for milliseconds shown as seconds."""


@dataclass(frozen=True, slots=True)
class HistogramMetric:
    """One family of buckets, all partitions of a hop together."""

    name: str
    help: str
    read: Callable[[TaskSnapshot], HistogramSnapshot]
    mirrors: str | None = None
