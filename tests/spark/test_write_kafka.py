"""Records that leave to Kafka: as they are, and once, whenever the driver dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from headrace.contracts.dead_letter import DeadLetter, dead_headers, read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.errors import InstanceFenced, SinkOfAnotherQuery, TopicRefused
from headrace.contracts.record import Headers, Record
from headrace.contracts.topics import cleaned_topic, late_topic
from headrace.spark_jobs.headers import decode_headers
from headrace.spark_jobs.write import kafka as write_kafka
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.gathered import Gathered
from headrace.spark_jobs.write.kafka import KafkaSink
from headrace.spark_jobs.write.markers import Marker, last_marker, markers_topic
from headrace.spark_jobs.write.too_large import TooLarge, batch_bytes
from headrace.spark_jobs.write.topics import check_topics, ensure_markers
from headrace.spark_jobs.write.transaction import (
    Batch,
    Outcome,
    check_marker,
    commit_rows,
    end_earlier,
    timeout_ms_of,
    write_rows,
)
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.spark.driver import KILLED, Driver, dying_order
from tests.spark.strikes import WRITERS, Strike, record_table, run_query, write_batch_file

NOTHING = TooLarge({})
"""No row is larger than its topic takes."""
BATCHES = 4
RECORDS = 300
HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", b"1"), ("trace", b"2")),
    (("b", b""), ("a", None), ("b", b"\xff\x00")),
)


def a_batch(number: int) -> list[Record]:
    """Records of all kinds, with the times of long ago."""
    return [
        Record(
            key=None if one == 0 else b"k%d" % one,
            value=None if one % 5 == 0 else b"%d/%d" % (number, one),
            timestamp_ms=1_000_000 * number + one + 1,
            headers=HEADERS[one % 3],
            topic="",
            partition=0,
            offset=None,
        )
        for one in range(RECORDS)
    ]


Said = Counter[tuple[bytes | None, bytes | None, int, Headers]]


def said(records: list[Record]) -> Said:
    """The contents of records, and how often they stand there."""
    return Counter((one.key, one.value, one.timestamp_ms, one.headers) for one in records)


def write_all(
    servers: str, topic: str, folder: Path, strike: Strike | None, handed_bytes_max: int
) -> None:
    """The life of one driver: all that is left to write, and then a query that is refused."""
    write_kafka.HANDED_BYTES_MAX = handed_bytes_max
    _run(servers, topic, folder, strike, "checkpoint")
    try:
        _run(servers, topic, folder, None, "another-checkpoint")
    except Exception as error:  # noqa: BLE001 - Spark wraps what a batch raised
        print("refused:", error)


def _run(servers: str, topic: str, folder: Path, strike: Strike | None, checkpoint: str) -> None:
    sink = KafkaSink(
        topic,
        {"bootstrap.servers": servers},
        {cleaned_topic(topic): 2, late_topic(f"{topic}.late"): 1},
    )

    def write(frame: DataFrame, batch: int) -> None:
        written = sink.write(frame, batch)
        print("wrote", batch, written.records, written.replayed, flush=True)

    run_query(folder, write, strike, checkpoint=checkpoint)


@pytest.mark.long("drivers", why="drivers are killed")
@pytest.mark.parametrize("writer", ["task", "driver"])
def test_every_record_leaves_once_whenever_the_driver_dies(
    kafka: SharedKafka, tmp_path: Path, writer: str
) -> None:
    handed_bytes_max = 0 if writer == "task" else write_kafka.HANDED_BYTES_MAX
    topic = fresh_name("joined")
    expected: dict[str, list[Record]] = {topic: [], f"{topic}.late": []}
    for number in range(BATCHES):
        records = a_batch(number)
        aimed = [(f"{topic}.late" if i % 7 == 0 else topic, one) for i, one in enumerate(records)]
        for target, one in aimed:
            expected[target].append(one)
        write_batch_file(tmp_path / "in", number, aimed)

    logs = []
    strikes = [Strike(1, "in the middle"), Strike(2, "behind"), None]
    for strike in strikes:
        args = (kafka.bootstrap_servers, topic, tmp_path, strike, handed_bytes_max)
        driver = Driver(tmp_path / f"{strike}.log", write_all, *args)
        code = driver.wait()
        assert code == (KILLED if strike else 0), driver.log
        logs.append(driver.log)

    for target, records in expected.items():
        assert said(kafka.clients.consume_all(target)) == said(records)
    # The first task had committed its part of batch 1, and every writer all of batch 2.
    replayed = _replayed(logs[1], 1)
    assert 0 < replayed < RECORDS if writer == "task" else replayed == 0
    assert _replayed(logs[2], 2) == RECORDS
    assert "has written with another checkpoint" in logs[2]


def _replayed(log: str, batch: int) -> int:
    line = next(line for line in log.splitlines() if line.startswith(f"wrote {batch} "))
    return int(line.split()[-1])


@pytest.fixture
def batch(kafka: SharedKafka) -> Batch:
    query = fresh_name("query")
    # A fenced client of librdkafka is never let go, and would say that the broker has gone.
    client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"}
    check_topics(client, {cleaned_topic(query): 1})
    ensure_markers(client, markers_topic(query), 1)
    return Batch(query, client, Marker("a-checkpoint", 7, 1))


def tables(*numbers: int) -> Callable[[str], Iterator[pa.RecordBatch]]:
    return lambda topic: iter(
        [record_table([(topic, one) for one in a_batch(number)]) for number in numbers]
    )


def test_a_driver_never_sees_what_it_started_die_before_it() -> None:
    assert dying_order([12, 95, 300, 400], leader=300, caller=95) == [300, 12, 400, 95]
    assert dying_order([12, 300, 400], leader=300, caller=300) == [12, 400, 300]


def digest_of(*numbers: int) -> Digest:
    digest = Digest()
    for table in tables(*numbers)("any"):
        digest.taken(table)
    return digest


def test_a_writer_that_was_overtaken_commits_nothing(batch: Batch, kafka: SharedKafka) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from tables(1)(batch.query)
        assert write_rows(batch, 0, tables(1)(batch.query), NOTHING) == Outcome(RECORDS, 0)

    with pytest.raises(InstanceFenced, match="another driver runs this query"):
        commit_rows(batch, 0, overtaken(), digest_of(1))
    assert said(kafka.clients.consume_all(batch.query)) == said(a_batch(1))


def test_a_copy_of_a_task_that_was_slower_writes_nothing(batch: Batch, kafka: SharedKafka) -> None:
    def copied() -> Iterator[pa.RecordBatch]:
        yield from tables(1)(batch.query)
        assert write_rows(batch, 0, tables(1)(batch.query), NOTHING) == Outcome(RECORDS, 0)

    assert write_rows(batch, 0, copied(), NOTHING) == Outcome(RECORDS, RECORDS)
    assert said(kafka.clients.consume_all(batch.query)) == said(a_batch(1))


def test_no_transaction_is_open_while_rows_are_computed(batch: Batch, kafka: SharedKafka) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from tables(1, 2)(batch.query)
        assert kafka.clients.consume_all(batch.query, read_committed=False) == []
        message = "the step before"
        raise ArithmeticError(message)

    with pytest.raises(ArithmeticError, match="the step before"):
        write_rows(batch, 0, failing(), NOTHING)
    assert kafka.clients.consume_all(batch.query) == []


def test_a_write_that_fails_leaves_no_transaction_open(batch: Batch, kafka: SharedKafka) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from tables(1)(batch.query)
        assert len(kafka.clients.consume(batch.query, 1, read_committed=False)) > 0
        message = "the disk"
        raise ArithmeticError(message)

    with pytest.raises(ArithmeticError, match="the disk") as caught:
        commit_rows(batch, 0, failing(), digest_of(1))
    assert not hasattr(caught.value, "__notes__")
    assert kafka.clients.consume_all(batch.query) == []


def test_a_transaction_may_stand_open_for_a_minute_and_longer_where_there_is_more_to_write() -> (
    None
):
    assert [timeout_ms_of(size_bytes) for size_bytes in (0, 50 << 20, 120 << 20, 9 << 30)] == [
        60_000,
        60_000,
        122_880,
        900_000,
    ]


@pytest.mark.parametrize("in_memory_bytes", [1, 64 << 20])
def test_rows_wait_in_memory_or_on_disk(in_memory_bytes: int) -> None:
    with Gathered(in_memory_bytes) as gathered:
        added = [*tables(1, 2, 3)("any")]
        for table in (added[0][:0], *added, added[0][:0]):
            gathered.add(table)
        assert gathered.size_bytes > sum(table.nbytes for table in added)
        assert [*gathered.tables()] == added
    with Gathered() as nothing:
        assert [*nothing.tables()] == []


def test_a_drivers_open_transaction_is_ended_by_the_next(batch: Batch, kafka: SharedKafka) -> None:
    left = Producer(
        {
            **batch.client,
            "transactional.id": f"{batch.query}-0",
            "transaction.timeout.ms": 900_000,
        }
    )
    left.init_transactions()
    left.begin_transaction()
    left.produce(batch.query, b"never committed")
    left.flush()
    end_earlier(batch, 1)
    assert kafka.clients.consume_all(batch.query) == []


def test_batches_are_as_large_as_a_topic_takes(kafka: SharedKafka) -> None:
    topic = cleaned_topic(fresh_name("small"))
    kafka.clients.make_topic(topic.name, 1, topic.settings() | {"max.message.bytes": "2000"})
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    takes_bytes = check_topics(client, {topic: 1}).takes_bytes
    assert takes_bytes == {topic.name: 2_000}
    ensure_markers(client, markers_topic(topic.name), 1)
    small = Batch(topic.name, client, Marker("a-checkpoint", 7, 1), takes_bytes)
    assert write_rows(small, 0, tables(1)(topic.name), NOTHING) == Outcome(RECORDS, 0)
    assert said(kafka.clients.consume_all(topic.name)) == said(a_batch(1))


def test_a_row_is_dead_from_the_first_byte_that_its_topic_does_not_take(
    kafka: SharedKafka,
) -> None:
    topic, source = fresh_name("small"), fresh_name("source")
    sizes = {topic: 2_000, f"{source}.dead": 1_700}
    for name, size in sizes.items():
        kafka.clients.make_topic(name, 1, {"max.message.bytes": str(size)})
    client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"}
    ensure_markers(client, markers_topic(topic), 1)
    headers = (("trace", b"1" * 70), ("empty", None))
    fits = 2_000 - batch_bytes(b"k", b"", headers) - 1  # its length takes another byte
    rows = [
        Record(b"k", b"x" * size, 5, headers, source, 3, size)
        for size in (1, fits, fits + 1, 10_000)
    ]
    table = record_table([(topic, one) for one in rows])
    large = TooLarge(sizes)
    batch = Batch(topic, client, Marker("a-checkpoint", 7, 1), sizes)
    assert write_rows(batch, 0, iter([table]), large) == Outcome(4, 0)
    again = write_rows(batch, 0, iter([table]), TooLarge({}))
    assert again == Outcome(4, 4), "it is repeated as it was"
    written = kafka.clients.consume_all(topic)
    assert [one.value for one in written] == [one.value for one in rows[:2]]
    letters = [read_dead(one) for one in kafka.clients.consume_all(f"{source}.dead")]
    assert [each and each.record.offset for each in letters] == [fits + 1, 10_000]
    assert letters[1] is not None
    assert (letters[1].reason, letters[1].is_cut) == (Reason.TOO_LARGE, True)
    assert sum(large.said.values()) == 2


def test_a_letter_that_its_topic_does_not_take_is_cut() -> None:
    dead = "orders.dead"
    record = Record(b"k", b"x" * 5_000, 5, (), "orders", 3, 8)
    letter = record._replace(headers=dead_headers(DeadLetter(record, "intake", None, "bad")))
    large = TooLarge({dead: 3_000})
    (row,) = large.set_aside(record_table([(dead, letter)])).to_pylist()
    assert row["target"] == dead
    assert len(row["value"]) < 3_000
    headers = decode_headers(row["headers"])
    assert ("headrace.value.bytes", b"5000") in headers
    assert large.said == {}


def test_a_refusal_that_was_not_foreseen_names_the_topic_and_its_setting(
    kafka: SharedKafka,
) -> None:
    topic = kafka.clients.make_topic(fresh_name("less"), 1, {"max.message.bytes": "2000"})
    client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"}
    ensure_markers(client, markers_topic(topic), 1)
    rows = [Record(b"k", b"x" * size, 5, (), "", 0, None) for size in (1, 3_000)]
    batch = Batch(topic, client, Marker("a-checkpoint", 7, 1))
    table = record_table([(topic, one) for one in rows])
    with pytest.raises(TopicRefused, match=f"takes less at once .*{topic}.*max.message.bytes"):
        write_rows(batch, 0, iter([table]), NOTHING)
    assert kafka.clients.consume_all(topic) == []


def test_a_writer_reads_to_the_end_what_it_need_not_write(batch: Batch) -> None:
    write_rows(batch, 0, tables(1, 2)(batch.query), NOTHING)
    again = tables(1, 2)(batch.query)
    assert write_rows(batch, 0, again, NOTHING) == Outcome(2 * RECORDS, 2 * RECORDS)
    assert next(again, None) is None


def test_order_stays_and_a_marker_is_found_behind_aborted_ones(
    batch: Batch, kafka: SharedKafka
) -> None:
    write_rows(batch, 0, tables(3)(batch.query), NOTHING)
    aborted = [Record(b"0", b"{}", 1, (), "", 0, None)] * 100
    kafka.clients.produce_aborted(markers_topic(batch.query), aborted, fresh_name("other"))
    found = last_marker(batch.client, markers_topic(batch.query), 0)
    assert found is not None
    assert found._replace(rows=None, keys="") == batch.marker
    assert found.rows == RECORDS
    written = kafka.clients.consume_all(batch.query)
    assert [one.timestamp_ms for one in written] == [one.timestamp_ms for one in a_batch(3)]


def test_the_first_millisecond_of_1970_is_written_as_the_second(
    batch: Batch, kafka: SharedKafka
) -> None:
    first = Record(b"k", b"v", 0, (), "", 0, None)
    write_rows(batch, 0, iter([record_table([(batch.query, first)])]), NOTHING)
    assert [one.timestamp_ms for one in kafka.clients.consume_all(batch.query)] == [1]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Marker("other", 3, WRITERS), "another checkpoint"),
        (Marker("mine", 5, WRITERS), "older copy"),
        (Marker("mine", 4, WRITERS + 1), "a part of micro-batch 4 with 4 writers"),
    ],
)
def test_a_marker_that_does_not_fit_is_refused(found: Marker, sentence: str) -> None:
    with pytest.raises(SinkOfAnotherQuery, match=sentence):
        check_marker("query", found, Marker("mine", 4, WRITERS))


def test_a_marker_tells_what_was_written() -> None:
    wanted = Marker("mine", 4, WRITERS)
    assert check_marker("query", wanted, wanted)
    assert not check_marker("query", None, wanted)
    assert not check_marker("query", Marker("mine", 3, WRITERS + 1), wanted)


def test_a_topic_that_replaces_times_is_refused(kafka: SharedKafka) -> None:
    settings = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    name = kafka.clients.make_topic(fresh_name("old"), 1, settings)
    with pytest.raises(TopicRefused, match=r"set its message\.timestamp\.type"):
        check_topics({"bootstrap.servers": kafka.bootstrap_servers}, {cleaned_topic(name): 1})


def test_a_topic_that_deletes_by_age_is_taken_by_who_asked_for_it(kafka_own: OwnKafka) -> None:
    kafka = SharedKafka(kafka_own({"log.retention.ms": "604800000"}).bootstrap_servers)
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    far = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    default = {cleaned_topic(kafka.clients.make_topic(fresh_name("default"), 1, far)): 1}
    with pytest.raises(TopicRefused, match=r"which is the brokers' default, .* or accept it"):
        check_topics(client, default)
    (accepted,) = check_topics(client, default, accepts_retention=True).warnings
    assert "deletes records older than 1w" in accepted
    chosen = kafka.clients.make_topic(fresh_name("chosen"), 1, {**far, "retention.ms": "86400000"})
    (warned,) = check_topics(client, {cleaned_topic(chosen): 1}).warnings
    assert "deletes records older than 1d" in warned


def test_markers_get_a_partition_a_writer(kafka: SharedKafka) -> None:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    topic = markers_topic(fresh_name("query"))
    assert [ensure_markers(client, topic, writers) for writers in (2, 4, 3)] == [0, 2, 4]
    assert len(Clients(kafka.bootstrap_servers).end_offsets(topic)) == 4


def test_markers_that_would_be_forgotten_are_refused(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(markers_topic(fresh_name("query")), 1)
    with pytest.raises(TopicRefused, match="set it to compact"):
        ensure_markers({"bootstrap.servers": kafka.bootstrap_servers}, topic, 1)
