"""What one task does: the rows of its partition and their marker, in one Kafka transaction.

The order is the point. All rows are there before anything is open, so a step that takes long,
fails or is killed leaves no transaction behind. Taking the transactional id fences whoever held it
before: an earlier attempt, a copy of this task, or a task of a driver that was killed. Only then
the marker is read, so what it says stays true until this transaction ends; if somebody takes the id
meanwhile, the commit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark import TaskContext

from headrace.contracts.errors import (
    InstanceFenced,
    KafkaUnreachable,
    ReplayDiffers,
    SinkOfAnotherQuery,
)
from headrace.spark_jobs.headers import decode_headers
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.gathered import Gathered
from headrace.spark_jobs.write.markers import (
    WITHIN_S,
    Marker,
    last_marker,
    marker_row,
    markers_topic,
)
from headrace.spark_jobs.write.topics import BATCH_BYTES

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
_TIMEOUT_MS, _TIMEOUT_MS_MAX = 60_000, 900_000
"""How long a transaction may stand open; brokers allow no more by default."""
_BYTES_A_MS = 1 << 10
"""How much of a task's rows a broker takes at the least: a megabyte a second."""
_ABORT_WITHIN_S = 10.0
_TAKEN_AT_ONCE = 16
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
    repeats: bool = True
    """Whether the same input gives the same rows again, for sure."""

    def marker_of(self, digest: Digest) -> Marker:
        """What a writer notes that has written this."""
        if not self.repeats:
            return self.marker
        return self.marker._replace(rows=digest.rows, keys=digest.keys)


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
    options = {found.options, wanted.options} - {""}
    if found.batch == wanted.batch and len(options) > 1:
        message = (
            f"`{query}` has written a part of micro-batch {found.batch} with other options than it"
            " has now; start it once with those that it had, and change them behind that batch, or"
            " have everything written once more with a new name, checkpoint and topic"
        )
        raise ReplayDiffers(message)
    return found.batch == wanted.batch


def check_rows(query: str, writer: int, found: Marker, now: Digest) -> None:
    """Refuse a micro-batch of which a writer would write something else than it has written."""
    if found.rows is None or (found.rows, found.keys) == (now.rows, now.keys):
        return
    differ = "others" if found.rows == now.rows else f"{now.rows} now"
    message = (
        f"micro-batch {found.batch} of `{query}` was written in part and comes out otherwise now:"
        f" writer {writer} has written {found.rows} rows, and they are {differ}; start it once with"
        " the code and the topics that it had, or have everything written once more with a new"
        " name, checkpoint and topic"
    )
    raise ReplayDiffers(message)


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
    digest = Digest()
    with Gathered() as gathered:
        for table in tables:
            gathered.add(digest.taken(table))
        if not digest.rows:
            return 0, 0
        timeout_ms = timeout_ms_of(gathered.size_bytes)
        return commit_rows(batch, writer, gathered.tables(), digest, timeout_ms)


def commit_rows(
    batch: Batch,
    writer: int,
    tables: Iterator[pa.RecordBatch],
    digest: Digest,
    timeout_ms: int = _TIMEOUT_MS,
) -> tuple[int, int]:
    """Write rows of which nothing is left to compute, and their marker; how many, as above."""
    topic = markers_topic(batch.query)
    producer = _producer(batch, writer, timeout_ms)
    try:
        producer.init_transactions(WITHIN_S)
        found = last_marker(batch.client, topic, writer)
        if found is not None and check_marker(batch.query, found, batch.marker):
            check_rows(batch.query, writer, found, digest)
            return digest.rows, digest.rows
        with _transaction(producer):
            for table in tables:
                _produce(producer, table)
            key, value = marker_row(writer, batch.marker_of(digest))
            producer.produce(topic, key=key, value=value, partition=writer)
    except KafkaException as error:
        # What is open is aborted when this id is taken again, by the next attempt.
        raise _failure(batch.query, error) from error
    return digest.rows, 0


def timeout_ms_of(size_bytes: int) -> int:
    """How long a transaction with so many bytes may stand open: a minute, if that will do."""
    return min(max(_TIMEOUT_MS, size_bytes // _BYTES_A_MS), _TIMEOUT_MS_MAX)


def end_earlier(batch: Batch, writers: int) -> None:
    """Abort what earlier writers of this query left open: readers stand still before it.

    A writer without rows takes no id, and there may be fewer writers than there were.
    """

    def take(writer: int) -> None:
        _producer(batch, writer, _TIMEOUT_MS).init_transactions(WITHIN_S)

    try:
        with ThreadPoolExecutor(_TAKEN_AT_ONCE) as taking:
            list(taking.map(take, range(writers)))
    except KafkaException as error:
        raise _failure(batch.query, error) from error


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    """Commit what is written; abort it at once where that fails, so that nobody waits."""
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction(WITHIN_S)
    except BaseException as error:
        try:
            producer.abort_transaction(_ABORT_WITHIN_S)
        except KafkaException as left:
            error.add_note(
                f"its transaction stays open until the next attempt: {left.args[0].str()}"
            )
        raise


def client_problem(client: Mapping[str, str]) -> str | None:
    """What librdkafka says of settings that it does not take; no broker is asked."""
    try:
        Producer({**client, "log_level": 0})
    except KafkaException as error:
        return " ".join(str(error.args[0].str()).split())
    return None


def _producer(batch: Batch, writer: int, timeout_ms: int) -> Producer:
    return Producer(
        {
            **batch.client,
            "transactional.id": f"{batch.query}-{writer}",
            "transaction.timeout.ms": timeout_ms,
            "partitioner": "murmur2_random",
            "message.max.bytes": _RECORD_BYTES_MAX,
            "batch.size": batch.bytes_max,
            "queue.buffering.max.kbytes": _QUEUE_KIB,
            "linger.ms": 20,
        }
    )


def _produce(producer: Producer, table: pa.RecordBatch) -> None:
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


def _failure(query: str, error: KafkaException) -> Exception:
    cause = error.args[0]
    # Found while records are handed over, it does not call itself fatal.
    if cause.fatal() or cause.code() in _FENCED:
        message = (
            f"`{query}` was fenced: another driver runs this query, or did until now, or Spark runs"
            f" a copy of a task, which is no harm ({cause.str()}); if it was a driver, leave one of"
            " them running, and start that one again"
        )
        return InstanceFenced(message)
    return KafkaUnreachable(f"`{query}` could not commit to Kafka: {cause.str()}")
