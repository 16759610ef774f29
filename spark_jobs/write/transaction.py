"""Write the rows of one task's partition and their marker, in one Kafka transaction.

The order matters. The task computes all rows before it opens a transaction, so a step that takes
long, fails or is killed leaves none open. Then it takes the transactional id, which fences the
earlier holder: an earlier attempt, a copy of this task, or a task of a driver that was killed. Only
then it reads the marker, so the marker stays true until this transaction ends. If another task
takes the id meanwhile, the commit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    TopicRefused,
)
from headrace.spark_jobs.headers import decode_headers
from headrace.spark_jobs.shapes import SAID
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.gathered import Gathered
from headrace.spark_jobs.write.markers import (
    WITHIN_S,
    Marker,
    last_marker,
    marker_row,
    markers_topic,
)
from headrace.spark_jobs.write.too_large import TooLarge
from headrace.spark_jobs.write.topics import BATCH_BYTES

NOTES_SCHEMA = (
    "records BIGINT, replayed BIGINT, note STRING, reason STRING, task INT, number BIGINT,"
    " added BIGINT"
)
"""The columns of a task's report to the driver: how many records, and the notes among its rows."""
_NOTES = pa.schema(
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
"""How long a transaction may stay open; brokers allow no more by default."""
_BYTES_A_MS = 1 << 10
"""How many bytes a broker takes in a millisecond at the least: a megabyte a second."""
_ABORT_WITHIN_S = 10.0
_TAKEN_AT_ONCE = 16
_QUEUE_KIB = 64 << 10
_RECORD_BYTES_MAX = 64 << 20
"""The topic limits the size of a record, not the client."""
_ROWS_A_POLL = 1_000
_FENCED = {
    KafkaError._FATAL,  # noqa: SLF001 - its public name
    KafkaError._FENCED,  # noqa: SLF001 - its public name
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_FULL_WAIT_S = 0.1
_CODEC, _NO_CODEC = ("compression.codec", "compression.type"), "none"
_RECORD = ("target", "key", "value", "timestamp_ms", "headers")
_EPOCH_MS = 1
"""The client takes 0 for "now", so the very first millisecond of 1970 becomes the second."""


class Note(NamedTuple):
    """The sum of the rows without a target that are about the same thing."""

    note: str
    """The kind of the note: a verdict."""
    reason: str | None
    task: int
    number: int | None
    """The number in the last of the rows."""
    added: int
    """By how much all of the rows changed it."""


_About = tuple[str, str | None, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one query, on its way to Kafka."""

    query: str
    client: Mapping[str, str]
    marker: Marker
    """The marker that every writer writes with its records."""
    takes_bytes: Mapping[str, int] = field(default_factory=dict)
    """The largest batch that each topic takes, as far as that is known."""
    repeats: bool = True
    """Whether the same input surely gives the same rows again."""

    def marker_of(self, digest: Digest) -> Marker:
        """Return the marker of a writer that has written the rows of this digest."""
        if not self.repeats:
            return self.marker
        return self.marker._replace(rows=digest.rows, keys=digest.keys)


def writer_of(batch: Batch) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function that writes one partition of a batch, for `mapInArrow`."""

    def write(tables: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        notes: dict[_About, Note] = {}
        large = TooLarge({} if _compresses(batch.client) else batch.takes_bytes)
        writer = context.partitionId()
        records, replayed = write_rows(batch, writer, _rows(tables, notes), large)
        counts = {"records": records, "replayed": replayed}
        said = (Note(SAID, text, writer, None, rows) for text, rows in large.said.items())
        noted = (note._asdict() for note in (*notes.values(), *said))
        yield pa.RecordBatch.from_pylist([counts, *noted], _NOTES)

    return write


def check_marker(query: str, found: Marker | None, wanted: Marker) -> bool:
    """Return whether a writer has committed this batch; refuse a marker that does not fit."""
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
    """Refuse a micro-batch whose rows differ from those that a writer has written of it."""
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
    """Yield the rows that go to a topic; add up the others as notes."""
    for table in tables:
        is_aimed = table.column("target").is_valid()
        if is_aimed.false_count:
            others = table.filter(pc.invert(is_aimed))
            columns = [others.column(name).to_pylist() for name in Note._fields]
            for note in map(Note._make, zip(*columns, strict=True)):
                about = note.note, note.reason, note.task
                before = notes.get(about)
                added = note.added + (before.added if before else 0)
                notes[about] = note._replace(added=added)
        yield table.filter(is_aimed)


def write_rows(
    batch: Batch, writer: int, tables: Iterator[pa.RecordBatch], large: TooLarge
) -> tuple[int, int]:
    """Write the rows of the tables; return how many, and how many had been written before."""
    digest = Digest()
    with Gathered() as gathered:
        for table in tables:
            # The digest is that of the rows as computed: what a topic takes may change meanwhile.
            gathered.add(large.set_aside(digest.taken(table)))
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
    """Write computed rows and their marker; return how many, and how many were there before."""
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
            # A commit that waits for records itself says nothing of one that a broker refused.
            producer.flush(WITHIN_S)
    except KafkaException as error:
        # The next attempt takes this id again, which aborts the open transaction.
        raise _failure(batch.query, error) from error
    return digest.rows, 0


def timeout_ms_of(size_bytes: int) -> int:
    """Return how long a transaction of so many bytes may stay open: a minute, if that is enough."""
    return min(max(_TIMEOUT_MS, size_bytes // _BYTES_A_MS), _TIMEOUT_MS_MAX)


def end_earlier(batch: Batch, writers: int) -> None:
    """Abort the open transactions of this query's earlier writers, which hold readers back.

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
    """Commit the transaction; on failure, abort it at once, so that readers do not wait."""
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
    """Return librdkafka's complaint about settings, None if it takes them; no broker is asked."""
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
            "batch.size": min([BATCH_BYTES, *batch.takes_bytes.values()]),
            "queue.buffering.max.kbytes": _QUEUE_KIB,
            "linger.ms": 20,
        }
    )


def _compresses(client: Mapping[str, str]) -> bool:
    return any(client.get(name, _NO_CODEC) != _NO_CODEC for name in _CODEC)


def _produce(producer: Producer, table: pa.RecordBatch) -> None:
    """Give a table's rows to the client, in their order."""
    columns = [table.column(name).to_pylist() for name in _RECORD]
    produce = producer.produce
    rows = zip(*columns, strict=True)
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
    # An error found while records are handed over does not call itself fatal.
    if cause.fatal() or cause.code() in _FENCED:
        message = (
            f"`{query}` was fenced: another driver runs this query, or did until now, or Spark runs"
            f" a copy of a task, which is no harm ({cause.str()}); if it was a driver, leave one of"
            " them running, and start that one again"
        )
        return InstanceFenced(message)
    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        message = (
            f"a topic of `{query}` takes less at once than this job sends ({cause.str()}); raise"
            " its max.message.bytes, and start the job again"
        )
        return TopicRefused(message)
    return KafkaUnreachable(f"`{query}` could not commit to Kafka: {cause.str()}")
