"""`python -m tests.bench.spark.plain SERVERS FOLDER OUT TOPIC...`: a small stateful query by hand.

A count a key by `transformWithStateInPandas`, from Kafka to Kafka, as Spark's own pages write it.
It runs until it is told to stop and says how long each micro-batch took, a line each.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.spark_jobs.session import open_session
from tests.bench.spark.topics import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

SAYS = "micro-batch of"
_CORES = 2


class Count(StatefulProcessor):
    """How often each key came."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the count of a key."""
        self._count = handle.getValueState("count", "number bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Add the rows of a micro-batch."""
        before = self._count.get()
        number = (before[0] if before else 0) + sum(len(each) for each in rows)
        self._count.update((number,))
        yield pd.DataFrame({"key": [key[0]], "value": [str(number).encode()]})

    def close(self) -> None:
        """Do nothing, since nothing is open."""


class _Says(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Say nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Say nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Say nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Say how long a micro-batch took."""
        print(SAYS, event.progress.durationMs["triggerExecution"], "ms", flush=True)


def main() -> None:
    """Count until the process is told to stop."""
    servers, folder, out, *topics = sys.argv[1:]
    spark = open_session(
        "plain",
        master=f"local[{_CORES}]",
        shuffle_partitions=PARTITIONS,
        settings={"spark.ui.enabled": "false"},
    )
    spark.streams.addListener(_Says())
    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = records.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    counted = (
        records.load()
        .select("key", "value")
        .groupBy("key")
        .transformWithStateInPandas(Count(), "key binary, value binary", "Update", "None")
    )
    writer = counted.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", out).option("checkpointLocation", f"{folder}/plain-checkpoint")
    query = writer.outputMode("update").trigger(processingTime="1 second").start()
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
