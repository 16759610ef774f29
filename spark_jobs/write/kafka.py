"""Records to Kafka, exactly once, with their own timestamps, headers and tombstones.

Spark's own Kafka sink ignores timestamps, and writes a batch twice if the driver dies behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from contracts.topics import TopicSpec
from spark_jobs.headers import packed_headers
from spark_jobs.write.batch import query_id_of
from spark_jobs.write.markers import Marker, last_marker, markers_topic
from spark_jobs.write.topics import BATCH_BYTES, check_topics, ensure_markers
from spark_jobs.write.transaction import TOLD_SCHEMA, Batch, Note, check_marker, writer_of

COLUMNS = ("target", "key", "value", "timestamp_ms", "headers", *Note._fields)
"""What a frame needs: the topic, and the record.

A row without a target is a note for the driver.
"""


_log = logging.getLogger(__name__)


class Written(NamedTuple):
    """What became of one micro-batch."""

    records: int
    replayed: int
    """Of these, how many an earlier attempt had committed."""
    notes: list[Note]


class KafkaSink:
    """Writes the micro-batches of one query, with one writer for each partition of the frame."""

    def __init__(
        self,
        query: str,
        client: Mapping[str, str],
        topics: Mapping[TopicSpec, int],
        *,
        accepts_retention: bool = False,
    ) -> None:
        """Nothing is asked of a broker before the first batch.

        Args:
            query: The query's name, which it keeps for as long as it lives.
            client: How to connect, in the words of librdkafka.
            topics: Where records may go, each with the partitions it gets if it is missing.
            accepts_retention: Whether they may delete by the brokers' default.
        """
        self._query = query
        self._client = dict(client)
        self._topics = dict(topics)
        self._bytes_max = BATCH_BYTES
        self._accepts_retention = accepts_retention
        self._markers = 0
        """How many writers have a partition for their markers."""

    def write(self, frame: DataFrame, batch_id: int) -> Written:
        """Write what an earlier attempt at this micro-batch did not; the frame is read whole."""
        writers = frame.rdd.getNumPartitions()
        if not self._markers:
            checked = check_topics(
                self._client, self._topics, accepts_retention=self._accepts_retention
            )
            self._bytes_max = checked.takes_bytes
            for warning in checked.warnings:
                _log.warning("%s: %s", self._query, warning)
        marker = Marker(query_id_of(frame), batch_id, writers)
        batch = Batch(self._query, self._client, marker, self._bytes_max)
        if self._markers < writers:
            self._prepare(batch)
        rows = frame.select(*COLUMNS).withColumn("headers", packed_headers())
        told = rows.mapInArrow(writer_of(batch), TOLD_SCHEMA).collect()
        counts = [row for row in told if row["records"] is not None]
        notes = [
            Note(*(row[name] for name in Note._fields)) for row in told if row["note"] is not None
        ]
        records = sum(row["records"] for row in counts)
        return Written(records, sum(row["replayed"] for row in counts), notes)

    def _prepare(self, batch: Batch) -> None:
        topic = markers_topic(self._query)
        writers = ensure_markers(self._client, topic, batch.marker.writers)
        # A writer sees its own marker; that another number of them began a batch shows here alone.
        for writer in range(writers):
            check_marker(self._query, last_marker(self._client, topic, writer), batch.marker)
        self._markers = max(writers, batch.marker.writers)
