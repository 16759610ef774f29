"""Tasks write the results that they make, as the driver tells them for a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts.topics import cleaned_topic
from headrace.spark_jobs.operators import leaving as operators_leaving
from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA
from headrace.spark_jobs.operators.columns import wrapped
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.shapes import BUNDLE, FIELDS
from headrace.spark_jobs.write.aim import Targets
from headrace.spark_jobs.write.bundled import BUNDLE_BYTES, COLUMNS, Aim
from headrace.spark_jobs.write.kafka import KafkaSink
from headrace.spark_jobs.write.markers import Marker
from headrace.spark_jobs.write.transaction import Batch
from headrace.spark_jobs.write.where_made import Words, words_here
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.frames import run_to_end


class _Kept:
    """A writer that keeps what it is given."""

    def __init__(self, fields: pa.StructType | None = None) -> None:
        self.fields = fields
        self.calls: list[tuple[list[pa.RecordBatch], Words]] = []

    def write(self, results: Iterable[pa.RecordBatch], words: Words) -> None:
        self.calls.append(([*results], words))


def _results(first: int, count: int, size: int = 10) -> pd.DataFrame:
    columns = {
        name: pa.nulls(count, kind) for name, kind in zip(COLUMNS.names, COLUMNS.types, strict=True)
    }
    columns["verdict"] = pa.array(["joined"] * count)
    columns["sequence"] = pa.array(range(first, first + count), pa.int64())
    columns["value"] = pa.array([b"v" * size] * count, pa.binary())
    return wrapped(columns)


def _tell(monkeypatch: pytest.MonkeyPatch, words: Words | None) -> None:
    monkeypatch.setattr(operators_leaving, "words_here", lambda: words)


def test_a_partition_is_written_once_with_the_results_of_all_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = _Kept()
    leaving = Leaving(writer)
    _tell(monkeypatch, {"batch": 7})
    assert [*leaving.bundled([_results(0, 3), _results(3, 2)])] == []
    assert [*leaving.bundled([])] == []
    assert [*leaving.bundled([_results(5, 1)])] == []
    assert writer.calls == []
    leaving.end()
    ((batches, words),) = writer.calls
    assert words == {"batch": 7}
    assert [n for batch in batches for n in batch["sequence"].to_pylist()] == [*range(6)]
    assert all(batch.schema == COLUMNS for batch in batches)


def test_a_writer_of_rows_gets_their_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = pa.array([{"n": 1}, {"n": 2}])
    writer = _Kept(fields.type)
    leaving = Leaving(writer)
    assert leaving.fields() is None
    _tell(monkeypatch, {})
    assert leaving.fields() == fields.type
    with_fields = _results(0, 2).assign(**{FIELDS: pd.arrays.ArrowExtensionArray(fields)})
    # A task may have no row that was made in columns.
    for frames in ([_results(0, 1)], [with_fields, _results(2, 1)]):
        assert [*leaving.bundled(frames)] == []
    leaving.end()
    ((batches, _),) = writer.calls
    assert all(batch.schema == COLUMNS.append(pa.field(FIELDS, fields.type)) for batch in batches)
    found = [row for batch in batches for row in batch[FIELDS].to_pylist()]
    assert found == [None, {"n": 1}, {"n": 2}, None]


def test_a_writer_gets_pieces_of_about_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _Kept()
    leaving = Leaving(writer)
    _tell(monkeypatch, {})
    assert [*leaving.bundled([_results(0, 40, BUNDLE_BYTES // 8)])] == []
    leaving.end()
    ((batches, _),) = writer.calls
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.num_rows for batch in batches) <= 9


def test_a_partition_without_tasks_reports_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _Kept()
    _tell(monkeypatch, {})
    Leaving(writer).end()
    assert writer.calls == [([], {})]


def test_results_leave_in_bundles_where_no_driver_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = _Kept()
    for words, leaving in ((None, Leaving(writer)), ({}, Leaving())):
        _tell(monkeypatch, words)
        (left,) = leaving.bundled([_results(0, 3)])
        leaving.end()
        (bundle,) = left[BUNDLE]
        batch = pa.ipc.read_record_batch(pa.py_buffer(bundle), COLUMNS)
        assert batch["sequence"].to_pylist() == [0, 1, 2]
    assert writer.calls == []


def test_words_are_those_of_the_micro_batch_and_have_no_password() -> None:
    client = {"bootstrap.servers": "here:1", "sasl.password": "secret"}
    marker = Marker("id", 3, 2, "options")
    batch = Batch("q", client, marker, {"topic": 1_000}, repeats=False, handed_bytes_max=5)
    text = json.dumps(batch.words())
    assert "secret" not in text
    assert "here" not in text
    assert Batch.of_words(json.loads(text), client) == batch


def test_outside_of_a_task_nothing_is_told() -> None:
    assert words_here() is None


def test_results_that_no_task_writes_end_the_query(
    spark: SparkSession, kafka: SharedKafka, tmp_path: Path
) -> None:
    topic = fresh_name("silent")
    targets = Targets(topic, None)
    spark.createDataFrame([(0, b"bundle")], BUNDLES_SCHEMA).write.parquet(str(tmp_path / "in"))
    seen: list[str] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        client = {"bootstrap.servers": kafka.bootstrap_servers}
        sink = KafkaSink(topic, client, {cleaned_topic(topic): 1})
        sink.writer_where_made(frame.sparkSession, Aim(targets), None)
        # These frames have no processor, so nobody hears what the driver says.
        for bundles in (frame, frame.limit(0).repartition(2)):
            with pytest.raises(AssertionError) as raised:
                sink.write_bundles(bundles, batch_id, Aim(targets))
            seen.append(str(raised.value))
        sink.close()

    frame = spark.readStream.schema(BUNDLES_SCHEMA).parquet(str(tmp_path / "in"))
    run_to_end(frame.writeStream.foreachBatch(write), tmp_path / "checkpoint")
    kept, silent = seen
    assert kept.startswith("a task that is to write its results keeps none")
    assert silent.startswith("each writer reports once")
    assert kafka.clients.consume_all(topic) == []
