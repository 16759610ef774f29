"""What one task does: the rows of its partition and their marker, in one Kafka transaction.

The order is the point. Taking the transactional id fences whoever held it before: an earlier
attempt, or a task of a driver that was killed. Only then the marker is read, so what it says stays
true until this transaction ends; if somebody takes the id meanwhile, the commit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark import TaskContext

from contracts.errors import InstanceFenced, KafkaUnreachable, SinkOfAnotherQuery
from spark_jobs.headers import decode_headers
from spark_jobs.write.markers import WITHIN_S, Marker, last_marker, marker_row, markers_topic
from spark_jobs.write.topics import BATCH_BYTES

TOLD_SCHEMA = (
    "records BIGINT, replayed BIGINT, note STRING, reason STRING, task INT, number BIGINT,"
    " added BIGINT"
)
"""What a task tells the driver: how many records, and the notes among its rows."""
_TOLD = pa.schema(
    [
        ("records", pa.int64()),
        ("replayed", pa.int64()),
        ("note", pa.string()),
        ("reason", pa.string()),
        ("task", pa.int32()),
        ("number", pa.int64()),
        ("added", pa.int64()),
    ]
)
_TIMEOUT_MS = 900_000
"""A transaction may take as long as brokers allow by default: a task computes while it writes."""
_QUEUE_KIB = 64 << 10
_RECORD_BYTES_MAX = 64 << 20
"""The topic says how large a record may be, not the client."""
_ROWS_A_POLL = 1_000
_FENCED = {
    KafkaError._FATAL,  # noqa: SLF001 - its public name
    KafkaError._FENCED,  # noqa: SLF001 - its public name
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_FULL_WAIT_S = 0.1
_EPOCH_MS = 1
"""The client takes 0 for "now", so the very first millisecond of 1970 stands as the second."""


class Note(NamedTuple):
    """What rows without a target say."""

    note: str
    """What it is about."""
    reason: str | None
    task: int
    number: int | None
    """How it stands, as the last of them says."""
    added: int
    """By how much all of them changed it."""


_About = tuple[str, str | None, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one query, on its way to Kafka."""

    query: str
    client: Mapping[str, str]
    marker: Marker
    """What every writer notes with its records."""
    bytes_max: int = BATCH_BYTES
    """How much the topics take at once."""


def writer_of(batch: Batch) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function that writes one partition of a batch, for `mapInArrow`."""

    def write(tables: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        notes: dict[_About, Note] = {}
        records, replayed = write_rows(batch, context.partitionId(), _rows(tables, notes))
        counts = {"records": records, "replayed": replayed}
        told = (note._asdict() for note in notes.values())
        yield pa.RecordBatch.from_pylist([counts, *told], _TOLD)

    return write


def check_marker(query: str, found: Marker | None, wanted: Marker) -> bool:
    """Whether a writer has committed this batch already; refuses what does not fit together."""
    if found is None:
        return False
    if found.query_id != wanted.query_id:
        message = (
            f"`{query}` has written with another checkpoint, and its output is there already; give"
            f" the job another name and topic, or delete the topic `{markers_topic(query)}` to"
            " have everything written once more"
        )
        raise SinkOfAnotherQuery(message)
    if found.batch > wanted.batch:
        message = (
            f"`{query}` has written micro-batch {found.batch}, and its checkpoint is only at"
            f" {wanted.batch}: it is an older copy; bring back the newest checkpoint"
        )
        raise SinkOfAnotherQuery(message)
    if found.batch == wanted.batch and found.writers != wanted.writers:
        message = (
            f"`{query}` has written a part of micro-batch {found.batch} with {found.writers}"
            f" writers, and would go on with {wanted.writers}; start it once more with"
            f" {found.writers} partitions, and change their number behind that batch"
        )
        raise SinkOfAnotherQuery(message)
    return found.batch == wanted.batch


def _rows(tables: Iterable[pa.RecordBatch], notes: dict[_About, Note]) -> Iterator[pa.RecordBatch]:
    """The rows that go to a topic; those that go nowhere are added up as notes."""
    for table in tables:
        is_aimed = table.column("target").is_valid()
        if is_aimed.false_count:
            told = table.filter(pc.invert(is_aimed))
            columns = [told.column(name).to_pylist() for name in Note._fields]
            for note in map(Note._make, zip(*columns, strict=True)):
                about = note.note, note.reason, note.task
                before = notes.get(about)
                added = note.added + (before.added if before else 0)
                notes[about] = note._replace(added=added)
        yield table.filter(is_aimed)


def write_rows(batch: Batch, writer: int, tables: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Write what the tables hold; how many records, and how many had been written before."""
    filled = (table for table in tables if table.num_rows)
    first = next(filled, None)
    if first is None:
        return 0, 0
    topic = markers_topic(batch.query)
    producer = _producer(batch, writer)
    try:
        producer.init_transactions(WITHIN_S)
        if check_marker(batch.query, last_marker(batch.client, topic, writer), batch.marker):
            # Read to the end nevertheless: the state of the steps before is committed by that.
            records = first.num_rows + sum(table.num_rows for table in filled)
            return records, records
        producer.begin_transaction()
        records = sum(_produce(producer, table) for table in chain((first,), filled))
        key, value = marker_row(writer, batch.marker)
        producer.produce(topic, key=key, value=value, partition=writer)
        producer.commit_transaction(WITHIN_S)
    except KafkaException as error:
        # What is open is aborted when this id is taken again, by the next attempt.
        raise _failure(batch.query, error) from error
    return records, 0


def client_problem(client: Mapping[str, str]) -> str | None:
    """What librdkafka says of settings that it does not take; no broker is asked."""
    try:
        Producer({**client, "log_level": 0})
    except KafkaException as error:
        return " ".join(str(error.args[0].str()).split())
    return None


def _producer(batch: Batch, writer: int) -> Producer:
    return Producer(
        {
            **batch.client,
            "transactional.id": f"{batch.query}-{writer}",
            "transaction.timeout.ms": _TIMEOUT_MS,
            "partitioner": "murmur2_random",
            "message.max.bytes": _RECORD_BYTES_MAX,
            "batch.size": batch.bytes_max,
            "queue.buffering.max.kbytes": _QUEUE_KIB,
            "linger.ms": 20,
        }
    )


def _produce(producer: Producer, table: pa.RecordBatch) -> int:
    """Hand a table's rows to the client, in their order."""
    columns = {name: table.column(name).to_pylist() for name in table.schema.names}
    produce = producer.produce
    rows = zip(
        columns["target"],
        columns["key"],
        columns["value"],
        columns["timestamp_ms"],
        columns["headers"],
        strict=True,
    )
    for number, (topic, key, value, timestamp_ms, headers) in enumerate(rows):
        at_ms = timestamp_ms or _EPOCH_MS
        listed: list[tuple[str, str | bytes | None]] | None
        listed = None if headers is None else [*decode_headers(headers)]
        while True:
            try:
                produce(topic, value, key, timestamp=at_ms, headers=listed)
                break
            except BufferError:
                producer.poll(_FULL_WAIT_S)
        if number % _ROWS_A_POLL == 0:
            producer.poll(0)
    return len(columns["target"])


def _failure(query: str, error: KafkaException) -> Exception:
    cause = error.args[0]
    # Found while records are handed over, it does not call itself fatal.
    if cause.fatal() or cause.code() in _FENCED:
        message = (
            f"`{query}` was fenced: another driver runs this query, or did until now"
            f" ({cause.str()}); leave one of them running, and start that one again"
        )
        return InstanceFenced(message)
    return KafkaUnreachable(f"`{query}` could not commit to Kafka: {cause.str()}")
