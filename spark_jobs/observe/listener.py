"""Collect Spark's own figures of each micro-batch."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.spark_jobs.seams import JStreamingQueryListener, java_listener

if TYPE_CHECKING:
    from uuid import UUID

    from headrace.spark_jobs.observe.metrics import Metrics

_MS = 1_000
_STATE_SIZES = {
    "numRowsTotal": ("state_rows", "Rows of state."),
    "memoryUsedBytes": ("state_memory_bytes", "Memory that state takes."),
    "commitTimeMs": ("state_commit_milliseconds", "How long all tasks took to commit state."),
}


class Listener(StreamingQueryListener):
    """Hands the progress of a query to its metrics; Spark calls it between micro-batches."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._run: UUID | None = None
        """The run of the query that began last."""

    @cached_property
    def _jlistener(self) -> Any:
        """Return the listener that Java calls."""
        return java_listener(FromJava(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Show that the query runs."""
        self._run = event.runId
        self._metrics.set("up", "Whether the query runs.", 1)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Ignore that no record came in."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Show that the query does not run."""
        # Spark tells of a start at once, and of the end before it at some later time.
        if event.runId == self._run:
            self._metrics.set("up", "Whether the query runs.", 0)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Take the figures of a micro-batch."""
        self.take(json.loads(event.progress.json))

    def take(self, progress: dict[str, Any]) -> None:
        """Take the figures of a micro-batch, as Spark writes them."""
        show = self._metrics.set
        for name, rate in (
            ("input", "inputRowsPerSecond"),
            ("processed", "processedRowsPerSecond"),
        ):
            if rate in progress:
                text = "Rows a second that came in, and that were processed."
                show("rows_per_second", text, progress[rate], rate=name)
        for step, duration_ms in progress.get("durationMs", {}).items():
            text = "How long the last micro-batch took, and each part of it."
            show("batch_seconds", text, duration_ms / _MS, part=step)
        for source in progress.get("sources", ()):
            self._take_offsets(source)
        for number, operator in enumerate(progress.get("stateOperators", ())):
            for field, (name, text) in _STATE_SIZES.items():
                if field in operator:
                    show(name, text, operator[field], operator=str(number))

    def _take_offsets(self, source: dict[str, Any]) -> None:
        read, there = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        for (topic, partition), offset in read.items():
            labels = {"topic": topic, "partition": partition}
            self._metrics.set(
                "offset", "The offset up to which an input is read.", offset, **labels
            )
            behind = there.get((topic, partition), offset) - offset
            self._metrics.set("lag", "How many offsets of an input are not read.", behind, **labels)


class FromJava(JStreamingQueryListener):
    """Takes progress from Java as JSON alone.

    PySpark would copy each of its fields first. Some have names that Java looks up in all jars as
    if they were classes, in every micro-batch.
    """

    pylistener: Listener

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        """Hand over the figures of a micro-batch."""
        self.pylistener.take(json.loads(jevent.progress().json()))


def _offsets(said: Any) -> dict[tuple[str, str], int]:
    """Return offsets by topic and partition, nothing for sources other than Kafka."""
    if not isinstance(said, dict):
        return {}
    return {
        (topic, partition): offset
        for topic, offsets in said.items()
        if isinstance(offsets, dict)
        for partition, offset in offsets.items()
    }
