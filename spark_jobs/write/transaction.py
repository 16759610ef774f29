"""Write the rows of one task's partition and their marker, in one Kafka transaction.

A task that has few rows hands them to the driver (`kept`). Otherwise the order matters. The task
computes all rows before it opens a transaction, so a step that takes long, fails or is killed
leaves none open. Then it takes the transactional id, which fences the earlier holder: an earlier
attempt, a copy of this task, or a task of a driver that was killed. Only then it reads the marker,
so the marker stays true until this transaction ends. If another task takes the id meanwhile, the
commit fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer
from pyspark import TaskContext

from headrace.contracts.errors import ReplayDiffers, SinkOfAnotherQuery
from headrace.spark_jobs.shapes import SAID
from headrace.spark_jobs.write.claims import refuse_older_copy
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.gathered import Gathered
from headrace.spark_jobs.write.markers import Marker, last_marker, marker_row, markers_topic
from headrace.spark_jobs.write.producer import (
    QUIET,
    RECORD,
    TIMEOUT_MS,
    TIMEOUT_MS_MAX,
    failure_of,
    produce_rows,
    take_id,
    transaction,
)
from headrace.spark_jobs.write.too_large import TooLarge
from headrace.spark_jobs.write.topics import BATCH_BYTES

DRIVER = "driver"
"""It stands in the driver's transactional id where a writer has its number."""
NOTES_SCHEMA = (
    "writer INT, records BIGINT, replayed BIGINT, keys STRING, packed BINARY,"
    " note STRING, reason STRING, task INT, number BIGINT, added BIGINT"
)
"""The columns of a task's report to the driver: its outcome, and the notes among its rows."""
_NOTES = pa.schema(
    [
        ("writer", pa.int32()),
        ("records", pa.int64()),
        ("replayed", pa.int64()),
        ("keys", pa.string()),
        ("packed", pa.binary()),
        ("note", pa.string()),
        ("reason", pa.string()),
        ("task", pa.int32()),
        ("number", pa.int64()),
        ("added", pa.int64()),
    ]
)
NOTE = "note"
"""The column of a row without a target: the fields of a note, as JSON; null in all others."""
_BYTES_A_MS = 1 << 10
"""How many bytes a broker takes in a millisecond at the least: a megabyte a second."""
_TAKEN_AT_ONCE = 16
_CODEC, _NO_CODEC = ("compression.codec", "compression.type"), "none"


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


class Outcome(NamedTuple):
    """The fate of the rows of a writer."""

    records: int
    replayed: int
    """Of these, how many an earlier attempt had committed."""
    keys: str | None = None
    """The digest of the rows that the driver has still to write."""
    packed: bytes | None = None
    """These rows."""


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
    handed_bytes_max: int = 0
    """The size up to which a task hands its rows to the driver, and does not write them itself."""

    @property
    def size_bytes(self) -> int:
        """The largest batch of records that a producer sends."""
        return min([BATCH_BYTES, *self.takes_bytes.values()])

    def words(self) -> dict[str, Any]:
        """Return all but the way to connect, which may have a password, for `of_words`."""
        return {
            "query": self.query,
            "marker": [*self.marker],
            "takes_bytes": {**self.takes_bytes},
            "repeats": self.repeats,
            "handed_bytes_max": self.handed_bytes_max,
        }

    @classmethod
    def of_words(cls, words: Mapping[str, Any], client: Mapping[str, str]) -> Batch:
        """Return the micro-batch of which these are the words."""
        return cls(
            words["query"],
            client,
            Marker(*words["marker"]),
            words["takes_bytes"],
            words["repeats"],
            words["handed_bytes_max"],
        )

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
        outcome = write_rows(batch, writer, _rows(tables, notes), large)
        counts = {"writer": writer, **outcome._asdict()}
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
        refuse_older_copy(query, found.batch, wanted.batch)
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
            for text in others.column(NOTE).to_pylist():
                note = Note._make(map(json.loads(text).get, Note._fields))
                about = note.note, note.reason, note.task
                before = notes.get(about)
                added = note.added + (before.added if before else 0)
                notes[about] = note._replace(added=added)
        yield table.filter(is_aimed)


def write_rows(
    batch: Batch, writer: int, tables: Iterator[pa.RecordBatch], large: TooLarge
) -> Outcome:
    """Write the rows of the tables, or hand them to the driver if they are few."""
    digest = Digest()
    with Gathered() as gathered:
        for table in tables:
            # The digest is that of the rows as computed: what a topic takes may change meanwhile.
            gathered.add(large.set_aside(digest.taken(table)).select(RECORD))
        if not digest.rows:
            return Outcome(0, 0)
        if gathered.size_bytes <= batch.handed_bytes_max:
            return Outcome(digest.rows, 0, digest.keys, gathered.packed())
        timeout_ms = timeout_ms_of(gathered.size_bytes)
        return commit_rows(batch, writer, gathered.tables(), digest, timeout_ms)


def commit_rows(
    batch: Batch,
    writer: int,
    tables: Iterator[pa.RecordBatch],
    digest: Digest,
    timeout_ms: int = TIMEOUT_MS,
) -> Outcome:
    """Write computed rows and their marker, unless an earlier attempt did."""
    topic = markers_topic(batch.query)
    try:
        producer = take_id(id_of(batch.query, writer), batch.client, batch.size_bytes, timeout_ms)
        if has_committed(batch, writer, last_marker(batch.client, topic, writer), digest):
            return Outcome(digest.rows, digest.rows)
        with transaction(producer):
            produce_part(producer, batch, writer, tables, digest)
    except KafkaException as error:
        # The next attempt takes this id again, which aborts the open transaction.
        raise failure_of(batch.query, error) from error
    return Outcome(digest.rows, 0)


def has_committed(batch: Batch, writer: int, found: Marker | None, digest: Digest) -> bool:
    """Return whether a writer's last marker is of these rows; refuse one of others."""
    if found is None or not check_marker(batch.query, found, batch.marker):
        return False
    check_rows(batch.query, writer, found, digest)
    return True


def produce_part(
    producer: Producer,
    batch: Batch,
    writer: int,
    tables: Iterable[pa.RecordBatch],
    digest: Digest,
) -> None:
    """Give a writer's rows to the client, and the marker behind them."""
    for table in tables:
        produce_rows(producer, table)
    key, value = marker_row(writer, batch.marker_of(digest))
    producer.produce(markers_topic(batch.query), key=key, value=value, partition=writer)


def timeout_ms_of(size_bytes: int) -> int:
    """Return how long a transaction of so many bytes may stay open: a minute, if that is enough."""
    return min(max(TIMEOUT_MS, size_bytes // _BYTES_A_MS), TIMEOUT_MS_MAX)


def end_earlier(batch: Batch, writers: int) -> None:
    """Abort the open transactions of this query's earlier writers, which hold readers back.

    A writer without rows takes no id, and there may be fewer writers than there were.
    """

    def take(writer: int | str) -> None:
        take_id(id_of(batch.query, writer), {**batch.client, **QUIET})

    try:
        with ThreadPoolExecutor(_TAKEN_AT_ONCE) as taking:
            list(taking.map(take, [*range(writers), DRIVER]))
    except KafkaException as error:
        raise failure_of(batch.query, error) from error


def id_of(query: str, writer: int | str) -> str:
    """Return the transactional id of a query's writer; the driver is one as well."""
    return f"{query}-{writer}"


def _compresses(client: Mapping[str, str]) -> bool:
    return any(client.get(name, _NO_CODEC) != _NO_CODEC for name in _CODEC)
