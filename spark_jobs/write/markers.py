"""What a query has written to Kafka, in the compacted topic `<query>.batches`.

A row stands in the transaction whose records it speaks of, so it is there if and only if they are:

    key N, in partition N      writer N of the query
    value, JSON                {"query_id": of the checkpoint, "batch": number of the micro-batch,
                                "writers": how many shared the batch, "options": a digest of the
                                job's, "rows": how many it wrote, "keys": a digest of theirs}

Each writer has a partition of its own. Once a writer has fenced its predecessors, no transaction
is open there, so the last committed row is the truth, and it is never far from the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.contracts.errors import KafkaUnreachable

WITHIN_S = 60.0
"""How long a broker may take to answer."""
_FIRST_LOOK = 8
"""How many offsets from the end: a row and the marker of its transaction are two."""


class Marker(NamedTuple):
    """The last micro-batch that a writer has committed."""

    query_id: str
    """The id that Spark gave to the checkpoint."""
    batch: int
    writers: int
    options: str = ""
    """A digest of the options with which it was computed; empty where nobody said."""
    rows: int | None = None
    """How many it wrote; None where nobody can be sure of the same number again."""
    keys: str = ""
    """A digest of what they are: topics, keys and times, in whatever order."""


def markers_topic(query: str) -> str:
    """Where a query's markers stand."""
    return f"{query}.batches"


def marker_row(writer: int, marker: Marker) -> tuple[bytes, bytes]:
    """Key and value of a row."""
    return b"%d" % writer, json.dumps(marker._asdict(), separators=(",", ":")).encode()


def last_marker(client: Mapping[str, str], topic: str, writer: int) -> Marker | None:
    """What a writer has committed last, None if nothing."""
    consumer = Consumer(
        {
            **client,
            "group.id": topic,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    try:
        return _read_back(consumer, TopicPartition(topic, writer))
    except KafkaException as error:
        message = f"the markers in `{topic}` cannot be read: {error.args[0].str()}"
        raise KafkaUnreachable(message) from error
    finally:
        consumer.close()


def _read_back(consumer: Consumer, place: TopicPartition) -> Marker | None:
    start, end = consumer.get_watermark_offsets(place, timeout=WITHIN_S)
    look = _FIRST_LOOK
    while True:
        begin = max(start, end - look)
        value = _last_value(consumer, TopicPartition(place.topic, place.partition, begin))
        if value is not None:
            return Marker(**json.loads(value))
        if begin == start:
            return None
        # Transactions that were aborted stand between the row and the end.
        look *= _FIRST_LOOK


def _last_value(consumer: Consumer, place: TopicPartition) -> bytes | None:
    consumer.assign([place])
    value = None
    while True:
        message = consumer.poll(WITHIN_S)
        if message is None:
            sentence = f"no broker answers for {place.topic}/{place.partition} in {WITHIN_S:g} s"
            raise KafkaUnreachable(sentence)
        error = message.error()
        if error is None:
            value = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return value
        else:
            raise KafkaException(error)
