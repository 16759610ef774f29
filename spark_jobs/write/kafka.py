"""Write records to Kafka, exactly once, with their own timestamps, headers and tombstones.

Spark's own Kafka sink ignores timestamps, and writes a batch twice if the driver dies behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.topics import TopicSpec
from headrace.spark_jobs.headers import text_of_headers
from headrace.spark_jobs.shapes import ORIGIN
from headrace.spark_jobs.write.batch import query_id_of
from headrace.spark_jobs.write.beside import (
    MadeRows,
    Said,
    Table,
    beside_bundles,
    said_in,
    taken_from,
)
from headrace.spark_jobs.write.bundled import AIMED_SCHEMA, Aim
from headrace.spark_jobs.write.digest import Digest, digests_of, row_hash
from headrace.spark_jobs.write.kept import KeptWriter, Part
from headrace.spark_jobs.write.markers import Marker, last_marker, markers_topic
from headrace.spark_jobs.write.topics import check_topics, ensure_markers, partitions_of_markers
from headrace.spark_jobs.write.transaction import (
    NOTE,
    NOTES_SCHEMA,
    Batch,
    Note,
    check_marker,
    check_rows,
    end_earlier,
    writer_of,
)
from headrace.spark_jobs.write.where_made import (
    KafkaWriter,
    RowsWhereMade,
    TableWriter,
    Writer,
    tell,
)

_RECORD = ("target", "key", "value", "timestamp_ms", *ORIGIN)
COLUMNS = (*_RECORD, "headers", *Note._fields)
"""The columns of a frame: the topic, the record, and where that which caused it stood.

A row without a target is a note for the driver.
"""

HANDED_BYTES_MAX = 256 << 10
"""The size up to which a task hands its rows to the driver."""
_ALL_HANDED_BYTES_MAX = 16 << 20
"""The sum that the tasks of a micro-batch hand over at most."""
_log = logging.getLogger(__name__)


class Written(NamedTuple):
    """The outcome of one micro-batch."""

    records: int
    replayed: int
    """Of these, how many an earlier attempt had committed."""
    notes: list[Note]


class KafkaSink:
    """Writes the micro-batches of one query, with one writer for each partition of the frame.

    The driver writes for all writers that have few rows.
    """

    def __init__(
        self,
        query: str,
        client: Mapping[str, str],
        topics: Mapping[TopicSpec, int],
        *,
        accepts_retention: bool = False,
        options: str = "",
        repeats: bool = True,
    ) -> None:
        """Set up the sink; it connects to a broker with the first batch.

        Args:
            query: The query's name, which it keeps for as long as it lives.
            client: How to connect, in the words of librdkafka.
            topics: Where records may go, each with the partitions it gets if it is missing.
            accepts_retention: Whether they may delete by the brokers' default.
            options: A digest of the options with which rows are computed.
            repeats: Whether a micro-batch that is computed again surely has the same rows.
        """
        self._query = query
        self._client = dict(client)
        self._topics = dict(topics)
        self._takes_bytes: dict[str, int] = {}
        self._accepts_retention = accepts_retention
        self._options = options
        self._repeats = repeats
        self._markers = 0
        """How many writers have a partition for their markers."""
        self._kept = KeptWriter()
        self._said: Said | None = None
        self._written_where_made = False
        """Whether the tasks that make results write them."""

    def writer_where_made(self, spark: SparkSession, aim: Aim, table: Table | None) -> Writer:
        """Have results in bundles written where they are made; return the writer to have there."""
        self._written_where_made = True
        said = self._emptied(spark)
        if table is None:
            return KafkaWriter(self._client, aim, said)
        return TableWriter(self._client, aim, table, said)

    def write(self, frame: DataFrame, batch_id: int) -> Written:
        """Write what an earlier attempt at this micro-batch did not; this reads the whole frame."""
        # Spark writes each column of each row to Python, and a note is rare.
        note = F.when(F.col("target").isNull(), F.to_json(F.struct(*Note._fields)))
        headers = text_of_headers(frame).alias("headers")
        return self._write_all(
            frame.select(*_RECORD, headers, note.alias(NOTE), row_hash()), batch_id, None
        )

    def write_bundles(self, bundles: DataFrame, batch_id: int, aim: Aim) -> Written:
        """Do as `write` with results in bundles."""
        return self._write_all(bundles, batch_id, aim)

    def write_beside(
        self,
        bundles: DataFrame,
        batch_id: int,
        aim: Aim,
        table: Table,
        put: Callable[[MadeRows], object],
    ) -> Written:
        """Have `put` write the rows of a table, and write all other results as it reads them.

        So the steps run once, and nothing is kept of what they make.
        """
        batch, begun = self._begin(bundles, batch_id)
        if begun:
            bundles.persist()
            try:
                written = self._write_again(
                    batch, begun, bundles.mapInArrow(aim.rows_of, AIMED_SCHEMA)
                )
                put(MadeRows(bundles, table, table.rows_of))
            finally:
                bundles.unpersist()
            return written
        said = self._emptied(bundles.sparkSession)
        rows_of = beside_bundles(aim, table, writer_of(batch), said)
        if self._written_where_made:
            put(RowsWhereMade(bundles, table, rows_of, batch.words(), said))
        else:
            put(MadeRows(bundles, table, rows_of))
        return self._written(batch, taken_from(said))

    def _write_all(self, frame: DataFrame, batch_id: int, aim: Aim | None) -> Written:
        batch, begun = self._begin(frame, batch_id)
        if begun:
            rows = frame if aim is None else frame.mapInArrow(aim.rows_of, AIMED_SCHEMA)
            return self._write_again(batch, begun, rows)
        if aim is not None and self._written_where_made:
            said = self._emptied(frame.sparkSession)
            tell(frame, batch.words())
            return self._written(batch, taken_from(said))
        return self._write(batch, frame, aim)

    def _emptied(self, spark: SparkSession) -> Said:
        """Return what takes the words of tasks, without those of an attempt that failed."""
        if self._said is None:
            self._said = said_in(spark)
        taken_from(self._said)
        return self._said

    def _begin(self, frame: DataFrame, batch_id: int) -> tuple[Batch, dict[int, Marker]]:
        """Return a micro-batch on its way, and the markers of those that have written of it."""
        writers = frame.rdd.getNumPartitions()
        if not self._markers:
            checked = check_topics(
                self._client, self._topics, accepts_retention=self._accepts_retention
            )
            self._takes_bytes = checked.takes_bytes
            for warning in checked.warnings:
                _log.warning("%s: %s", self._query, warning)
        marker = Marker(query_id_of(frame), batch_id, writers, self._options)
        handed = handed_bytes_max(writers)
        batch = Batch(self._query, self._client, marker, self._takes_bytes, self._repeats, handed)
        return batch, self._prepare(batch) if self._markers < writers else {}

    def _write_again(self, batch: Batch, begun: dict[int, Marker], rows: DataFrame) -> Written:
        """Write what the others have not written; all rows are compared before any is written."""
        # Persisting avoids running the steps twice.
        rows.persist()
        try:
            now = digests_of(rows)
            for writer, found in begun.items():
                check_rows(self._query, writer, found, now.get(writer, Digest()))
            return self._write(batch, rows)
        finally:
            rows.unpersist()

    def wrote_otherwise(self, query_id: str, batch_id: int, options: str) -> bool:
        """Return whether any part of a micro-batch was written with other options than these.

        First it ends the transactions that its driver left open, so that none is committed
        afterwards.
        """
        topic = markers_topic(self._query)
        writers = partitions_of_markers(self._client, topic)
        if not writers:
            return False
        wanted = Marker(query_id, batch_id, writers, options)
        end_earlier(Batch(self._query, self._client, wanted), writers)
        markers = [last_marker(self._client, topic, writer) for writer in range(writers)]
        return any(
            found is not None
            and (found.query_id, found.batch) == (query_id, batch_id)
            and found.options != options
            for found in markers
        )

    def close(self) -> None:
        """Close what stays open between micro-batches; a later one opens it again."""
        self._kept.close()

    def _write(self, batch: Batch, rows: DataFrame, aim: Aim | None = None) -> Written:
        write = writer_of(batch)
        # One function, or Spark would make rows between the two.
        found = rows.mapInArrow(
            write if aim is None else lambda bundles: write(aim.rows_of(bundles)), NOTES_SCHEMA
        ).collect()
        return self._written(batch, [row.asDict() for row in found])

    def _written(self, batch: Batch, found: Sequence[Mapping[str, Any]]) -> Written:
        """Write what the tasks have handed over; return what came of the micro-batch."""
        counts = [row for row in found if row["records"] is not None]
        assert len(counts) == batch.marker.writers, "each writer reports once"
        notes = [
            Note(*(row[name] for name in Note._fields)) for row in found if row["note"] is not None
        ]
        replayed = sum(row["replayed"] for row in counts)
        replayed += self._kept.write(batch, [_part(row) for row in counts if row["packed"]])
        return Written(sum(row["records"] for row in counts), replayed, notes)

    def _prepare(self, batch: Batch) -> dict[int, Marker]:
        """Prepare the writers; return the markers of those that have written of this batch."""
        topic = markers_topic(self._query)
        writers = ensure_markers(self._client, topic, batch.marker.writers)
        # A writer sees only its own marker; a batch begun with another number of writers shows
        # here.
        self._begun(batch, writers)
        end_earlier(batch, writers)
        self._markers = max(writers, batch.marker.writers)
        # Ending transactions may have committed some, so the markers are read again.
        return self._begun(batch, writers)

    def _begun(self, batch: Batch, writers: int) -> dict[int, Marker]:
        topic = markers_topic(self._query)
        markers = [last_marker(self._client, topic, writer) for writer in range(writers)]
        return {
            writer: found
            for writer, found in enumerate(markers)
            if found is not None and check_marker(self._query, found, batch.marker)
        }


def handed_bytes_max(writers: int) -> int:
    """Return the size up to which each of so many tasks hands its rows to the driver."""
    return min(HANDED_BYTES_MAX, _ALL_HANDED_BYTES_MAX // writers)


def _part(row: Mapping[str, Any]) -> Part:
    digest = Digest(row["records"], int(row["keys"], 16))
    return Part(row["writer"], digest, bytes(row["packed"]))
