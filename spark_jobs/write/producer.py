"""Producers with a transactional id, and what goes into a transaction of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.contracts.errors import InstanceFenced, KafkaRefused, TopicRefused
from headrace.spark_jobs.headers import decode_headers
from headrace.spark_jobs.write.markers import WITHIN_S, trouble
from headrace.spark_jobs.write.topics import BATCH_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

TIMEOUT_MS, TIMEOUT_MS_MAX = 60_000, 900_000
"""How long a transaction may stay open; brokers allow no more by default."""
_ABORT_WITHIN_S = 10.0
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
RECORD = ("target", "key", "value", "timestamp_ms", "headers")
"""The columns of a row that a record is made of."""
QUIET = {"log_level": "0"}
"""For the driver, which writes to the user's terminal. The client would say there, twice a second,
that a broker has gone; a call that fails raises the error."""
_DECIDED = {
    "partitioner": "murmur2_random",
    "message.max.bytes": _RECORD_BYTES_MAX,
    "queue.buffering.max.kbytes": _QUEUE_KIB,
    "linger.ms": 20,
}
DECIDED = {*_DECIDED, "batch.size", "queue.buffering.max.ms", "transaction.timeout.ms"}
"""The settings of a producer that are not the user's; one is `linger.ms` by another name."""
_EPOCH_MS = 1
"""The client takes 0 for "now", so the very first millisecond of 1970 becomes the second."""


def client_problem(client: Mapping[str, str]) -> str | None:
    """Return librdkafka's complaint about settings, None if it takes them; no broker is asked."""
    try:
        # Some settings do not go with a transaction.
        Producer({**client, **_DECIDED, "transactional.id": "none", **QUIET})
    except KafkaException as error:
        return " ".join(str(error.args[0].str()).split())
    return None


def take_id(
    transactional_id: str,
    client: Mapping[str, str],
    batch_bytes: int = BATCH_BYTES,
    timeout_ms: int = TIMEOUT_MS,
) -> Producer:
    """Open a producer; this fences the earlier holder of its id, and ends what that left open."""
    producer = Producer(
        {
            **client,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "batch.size": batch_bytes,
            **_DECIDED,
        }
    )
    producer.init_transactions(WITHIN_S)
    return producer


@contextmanager
def transaction(producer: Producer) -> Iterator[None]:
    """Commit the transaction; on failure, abort it at once, so that readers do not wait."""
    producer.begin_transaction()
    try:
        yield
        # A commit that waits for records itself says nothing of one that a broker refused.
        producer.flush(WITHIN_S)
        producer.commit_transaction(WITHIN_S)
    except BaseException as error:
        try:
            producer.abort_transaction(_ABORT_WITHIN_S)
        except KafkaException as left:
            error.add_note(
                f"its transaction stays open until the next attempt: {left.args[0].str()}"
            )
        raise


def produce_rows(producer: Producer, table: pa.RecordBatch) -> None:
    """Give a table's rows to the client, in their order."""
    columns = [table.column(name).to_pylist() for name in RECORD]
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


def failure_of(query: str, error: KafkaException) -> Exception:
    """Return the error of ours for a transaction that a broker refused or did not answer."""
    cause, found = error.args[0], trouble(f"`{query}` could not commit to Kafka", error)
    # A right to the transactional id that is missing is fatal, too, and fences nobody.
    if isinstance(found, KafkaRefused):
        return found
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
    return found
