"""Markers of what a query has written to Kafka, in the compacted topic `<query>.batches`.

A marker is in the transaction of the records that it counts, so it exists if and only if they do:

    key N, in partition N     writer N of the query
    value, JSON               {"query_id": of the checkpoint, "batch": number of the micro-batch,
                               "writers": how many shared the batch, "options": a digest of the
                               job's, "rows": how many it wrote, "keys": a digest of theirs}

Each writer has a partition of its own. Once a writer has fenced its predecessors, no transaction is
open there, so the last committed marker is the truth, and it is near the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.contracts.errors import KafkaRefused, KafkaUnreachable
from headrace.spark_jobs.write.claims import refuse_newer

T = TypeVar("T")
WITHIN_S = 60.0
"""How long a broker may take to answer."""
ASK_AGAIN_S = 0.05
_NOT_YET = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""A broker names the leader of a new partition before that one has made its log."""
_REFUSALS = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_FIRST_LOOK = 8
"""How many offsets from the end: a row and the marker of its transaction are two."""


class Marker(NamedTuple):
    """The last micro-batch that a writer has committed."""

    query_id: str
    """The id that Spark gave to the checkpoint."""
    batch: int
    writers: int
    options: str = ""
    """A digest of the options with which it was computed; empty in markers of older versions."""
    rows: int | None = None
    """How many rows it wrote; None if a repeated batch may have another number."""
    keys: str = ""
    """A digest of their topics, keys and times, in any order."""


def markers_topic(query: str) -> str:
    """Return the topic of a query's markers."""
    return f"{query}.batches"


def marker_row(writer: int, marker: Marker) -> tuple[bytes, bytes]:
    """Return key and value of a marker's record."""
    return b"%d" % writer, json.dumps(marker._asdict(), separators=(",", ":")).encode()


def read_marker(topic: str, value: bytes) -> Marker:
    """Return the marker in a record of a topic; refuse one that a newer version wrote."""
    said = json.loads(value)
    refuse_newer(f"the topic `{topic}`", said, Marker._fields, Marker._field_defaults)
    return Marker(**said)


def last_marker(client: Mapping[str, str], topic: str, writer: int) -> Marker | None:
    """Return the last marker that a writer has committed, None if there is none."""
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
        what = f"the markers in `{topic}` cannot be read"
        raise trouble(what, error) from error
    finally:
        consumer.close()


def trouble(what: str, error: KafkaException) -> KafkaRefused | KafkaUnreachable:
    """Return the error of ours for a broker that refuses the job, or does not answer."""
    cause = error.args[0]
    if cause.code() in _REFUSALS:
        return KafkaRefused(
            f"{what}: the brokers refuse this job ({cause.str()}); give its user the right, or"
            " correct its login in `kafka` or `writer`"
        )
    return KafkaUnreachable(f"{what}: {cause.str()}")


def _read_back(consumer: Consumer, place: TopicPartition) -> Marker | None:
    start, end = ask_until_known(
        lambda: consumer.get_watermark_offsets(place, timeout=WITHIN_S), _NOT_YET
    )
    look = _FIRST_LOOK
    while True:
        begin = max(start, end - look)
        value = _last_value(consumer, TopicPartition(place.topic, place.partition, begin))
        if value is not None:
            return read_marker(place.topic, value)
        if begin == start:
            return None
        # Aborted transactions stand between the marker and the end.
        look *= _FIRST_LOOK


def ask_until_known(ask: Callable[[], T], not_yet: Container[int]) -> T:
    """Ask a broker again while it answers that it knows too little of a new topic."""
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in not_yet or time.monotonic() > give_up_at:
                raise
        # Brokers tell nobody when they have learnt of a topic.
        time.sleep(ASK_AGAIN_S)


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
