"""Write the parts of a micro-batch that tasks hand to the driver, by one producer that is kept.

To open a producer for a transaction, and to look for its marker, takes longer than to write a few
rows. A Python worker cannot keep producers: Spark gives a task to whichever worker was idle for the
longest time, so the next worker would fence the one before. The driver is one process.

As long as the kept producer commits, nobody else has taken its id, so what it knows of the markers
stays true. If it fails, it is thrown away. Another takes the id, reads the markers, and goes on
from there: the transaction that failed may have been committed all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.gathered import unpacked
from headrace.spark_jobs.write.markers import Marker, last_marker, markers_topic
from headrace.spark_jobs.write.producer import QUIET, failure_of, take_id, transaction
from headrace.spark_jobs.write.transaction import (
    DRIVER,
    Batch,
    has_committed,
    id_of,
    produce_part,
)

_log = logging.getLogger(__name__)


class Part(NamedTuple):
    """The rows of one writer in a micro-batch."""

    writer: int
    digest: Digest
    packed: bytes


class KeptWriter:
    """Writes parts of one query's micro-batches, all of a micro-batch in one transaction."""

    def __init__(self) -> None:
        """Open nothing before there is a part to write."""
        self._producer: Producer | None = None
        self._markers: dict[int, Marker | None] = {}
        """The last marker of each writer of which there was a part."""

    def write(self, batch: Batch, parts: Sequence[Part]) -> int:
        """Write parts and their markers; return how many rows an earlier attempt had committed."""
        if not parts:
            return 0
        was_kept = self._producer is not None
        try:
            return self._write(batch, parts)
        except KafkaException as error:
            self.close()
            if not was_kept:
                raise failure_of(batch.query, error) from error
            # Another driver may have taken its id, or its broker may have forgotten it.
            _log.info("%s: another producer goes on: %s", batch.query, error.args[0].str())
        except BaseException:
            self.close()
            raise
        return self.write(batch, parts)

    def close(self) -> None:
        """Let go of the producer and its connections; a later part opens another."""
        self._producer = None
        self._markers.clear()

    def _write(self, batch: Batch, parts: Sequence[Part]) -> int:
        if self._producer is None:
            client = {**batch.client, **QUIET}
            self._producer = take_id(id_of(batch.query, DRIVER), client, batch.size_bytes)
        new = [part for part in parts if not self._has_committed(batch, part)]
        if new:
            with transaction(self._producer):
                for part in new:
                    tables = unpacked(part.packed)
                    produce_part(self._producer, batch, part.writer, tables, part.digest)
            self._markers |= {part.writer: batch.marker_of(part.digest) for part in new}
        return sum(part.digest.rows for part in parts) - sum(part.digest.rows for part in new)

    def _has_committed(self, batch: Batch, part: Part) -> bool:
        """Return whether an earlier attempt has committed a part; refuse one that differs."""
        if part.writer not in self._markers:
            topic = markers_topic(batch.query)
            self._markers[part.writer] = last_marker(batch.client, topic, part.writer)
        return has_committed(batch, part.writer, self._markers[part.writer], part.digest)
