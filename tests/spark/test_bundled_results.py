"""Results in bundles are aimed as Spark aims rows, and hashed as Spark hashes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.topics import cleaned_topic, late_topic
from headrace.spark_jobs.headers import encode_headers
from headrace.spark_jobs.jobs.orders_prices import Config
from headrace.spark_jobs.jobs.run import find_job, leaves_bundled
from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA
from headrace.spark_jobs.operators.columns import RESULTS_SCHEMA, wrapped
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.write import kafka as write_kafka
from headrace.spark_jobs.write.aim import ROWS, Targets, aimed
from headrace.spark_jobs.write.bundled import BUNDLE_BYTES, COLUMNS, Aim, packed
from headrace.spark_jobs.write.digest import digest_of_table, row_hash
from headrace.spark_jobs.write.kafka import KafkaSink, Written
from headrace.spark_jobs.write.output import digest_of_bundles
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.frames import BUNDLED_SCHEMA, run_to_end

HEADERS = encode_headers((("trace", b"\xff"), ("none", None)))
KEYS = [None, b"", b"k", b"key" * 11, b"\x00\xff" * 40]
TIMES_MS = [None, 0, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)]
VERDICTS = [
    *("joined", "corrected", "changed", "late", "dead", "cold", "failed", "count", "said"),
    *("lowest", "passed", "position"),
]
AVRO = {"topic": "t", "value": "avro", "registry": {"url": "http://127.0.0.1:1"}}
NAMES = ["target", "key", "value", "timestamp_ms", "topic", "partition", "offset", "headers"]


def _results() -> list[dict[str, Any]]:
    rows = [
        {
            **dict.fromkeys(COLUMNS.names),
            "verdict": verdict,
            "task": 3,
            "topic": "orders",
            "partition": 1,
            "offset": 7,
            "timestamp_ms": TIMES_MS[place % len(TIMES_MS)],
            "key": key,
            "value": b"v" * place,
            "headers": (None, HEADERS)[place % 2],
            "reason": (None, 'why "so"')[place // 2 % 2],
            "number": (None, 5)[place // 3 % 2],
            "added": (None, 2)[place // 5 % 2],
        }
        for verdict in VERDICTS
        for place, key in enumerate(KEYS * 6)
    ]
    return [*rows, {**dict.fromkeys(COLUMNS.names), "verdict": "count", "task": 0}]


def _spark_aims(spark: SparkSession, targets: Targets, results: list[dict[str, Any]]) -> DataFrame:
    rows = [tuple(row[name] for name in COLUMNS.names) for row in results]
    frame = spark.createDataFrame(rows, BUNDLED_SCHEMA).coalesce(1)
    if targets.rows is None:
        frame = frame.where(~F.col("verdict").isin(*ROWS))
    return aimed(frame, targets)


@pytest.mark.parametrize(
    "targets", [Targets("rows", "late"), Targets("rows", None), Targets(None, "late")]
)
def test_a_bundle_is_aimed_as_spark_aims_rows(spark: SparkSession, targets: Targets) -> None:
    note = F.to_json(F.struct("note", "reason", "task", "number", "added"))
    rows = _spark_aims(spark, targets, _results())
    wanted = [row.asDict() for row in rows.select(*NAMES, note.alias("note"), row_hash()).collect()]
    bundles = [*packed(pa.Table.from_pylist(_results(), COLUMNS))]
    batch = pa.RecordBatch.from_pydict({BUNDLE: pa.array(bundles, pa.binary())})
    found = [row for rows in Aim(targets).rows_of([batch]) for row in rows.to_pylist()]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert {name: one[name] for name in NAMES} == {name: other[name] for name in NAMES}
        if one["target"] is None:
            said = json.loads(one["note"])
            assert {name: it for name, it in said.items() if it is not None} == json.loads(
                other["note"]
            )
        else:
            assert one["note"] is None
            assert one["row_hash"] == other["row_hash"], one


def test_the_digest_of_bundles_is_that_of_the_table_of_their_rows(spark: SparkSession) -> None:
    # Spark has no timestamp of these times in microseconds.
    results = [row for row in _results() if abs(row["timestamp_ms"] or 0) <= 1 << 40]
    bundles = [
        (0, one)
        for part in (results[::2], results[1::2])
        for one in packed(pa.Table.from_pylist(part, COLUMNS))
    ]
    rows = [row for row in results if row["verdict"] in ROWS]
    table = spark.createDataFrame(
        [(row["key"], row["timestamp_ms"]) for row in rows], "key BINARY, timestamp_ms BIGINT"
    ).select(F.col("key").cast("string"), F.timestamp_millis("timestamp_ms").alias("timestamp"))
    found = digest_of_bundles(spark.createDataFrame(bundles, BUNDLES_SCHEMA))
    assert found == digest_of_table(table)
    assert found.rows == len(rows) > len(KEYS)
    assert digest_of_bundles(spark.createDataFrame([], BUNDLES_SCHEMA)).rows == 0


@pytest.mark.parametrize("hands_over", [True, False])
def test_bundles_do_not_write_again_what_rows_have_written(
    spark: SparkSession,
    kafka: SharedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hands_over: bool,  # noqa: FBT001 (pytest gives it)
) -> None:
    if not hands_over:
        monkeypatch.setattr(write_kafka, "HANDED_BYTES_MAX", 0)
    topic = fresh_name("rows")
    targets = Targets(topic, f"{topic}.late")
    results = [
        {**row, "topic": topic, "timestamp_ms": place}
        for place, row in enumerate(_results())
        if row["verdict"] in {"joined", "late", "count"}
    ]
    bundles = [(0, one) for one in packed(pa.Table.from_pylist(results, COLUMNS))]
    spark.createDataFrame(bundles, BUNDLES_SCHEMA).coalesce(1).write.parquet(str(tmp_path / "in"))
    written: list[Written] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        topics = {cleaned_topic(topic): 1, late_topic(f"{topic}.late"): 1}
        for by_bundles in (False, True, False, True):
            sink = KafkaSink(topic, {"bootstrap.servers": kafka.bootstrap_servers}, topics)
            if by_bundles:
                written.append(sink.write_bundles(frame.coalesce(1), batch_id, Aim(targets)))
            else:
                rows = _spark_aims(frame.sparkSession, targets, results)
                written.append(sink.write(rows, batch_id))
            sink.close()

    frame = spark.readStream.schema(BUNDLES_SCHEMA).parquet(str(tmp_path / "in"))
    run_to_end(frame.writeStream.foreachBatch(write), tmp_path / "checkpoint")
    sent = sum(row["verdict"] != "count" for row in results)
    assert [(one.records, one.replayed) for one in written] == [(sent, 0), *[(sent, sent)] * 3]
    assert len({tuple(sorted(one.notes, key=repr)) for one in written}) == 1
    assert len(kafka.clients.consume_all(topic)) == sum(
        row["verdict"] == "joined" for row in results
    )


def test_results_leave_in_their_order_and_large_ones_alone() -> None:
    sizes = [10, 2 * BUNDLE_BYTES, 10, 10, BUNDLE_BYTES, 10]
    names = [column.split()[0] for column in RESULTS_SCHEMA.split(", ")]
    types = {"task": pa.int32(), "input": pa.int32(), "partition": pa.int32()}
    texts = {"verdict", "reason", "topic", "headers"}
    bytes_ = {"key", "value", "table_value"}
    frames = []
    for place, size in enumerate(sizes):
        columns = {
            name: pa.nulls(
                1,
                types.get(
                    name,
                    pa.string() if name in texts else pa.binary() if name in bytes_ else pa.int64(),
                ),
            )
            for name in names
        }
        columns["verdict"] = pa.array(["joined"])
        columns["offset"] = pa.array([place], pa.int64())
        columns["value"] = pa.array([b"v" * size], pa.binary())
        frames.append(wrapped(columns))
    (left,) = Leaving().bundled(frames)
    batches = [pa.ipc.read_record_batch(pa.py_buffer(one), COLUMNS) for one in left[BUNDLE]]
    assert [place for batch in batches for place in batch["offset"].to_pylist()] == [*range(6)]
    assert len(batches) > 1
    assert [*Leaving().bundled([])] == []


@pytest.mark.parametrize(
    ("name", "more", "bundled"),
    [
        ("orders-prices", {}, True),
        ("orders-prices", {"sink": {"parquet": {"folder": "t"}}}, True),
        ("orders-prices", {"sink": {"delta": {"folder": "t"}}}, True),
        ("orders-prices", {"sink": {"iceberg": {"folder": "t"}}}, True),
        ("orders-prices", {"sink": {"delta": {"folder": "t", "mode": "upsert"}}}, False),
        ("orders-prices", {"sink": {"console": {}}}, False),
        ("orders-prices", {"sink": {"kafka": AVRO}}, False),
        ("orders-prices", {"cold-history": {"folder": "cold"}}, False),
        # It calls orders-prices, and looks at the rows of it.
        ("tests.spark.struck", {}, False),
    ],
)
def test_rows_that_somebody_looks_at_leave_as_rows(
    name: str, more: dict[str, Any], *, bundled: bool
) -> None:
    inputs = {one: {"topic": one} for one in ("prices", "orders")}
    said = {"job": name, "name": "it", "servers": "here:1", "checkpoint": "c", "retention": "1h"}
    sink = {"kafka": {"topic": "rows"}}
    config = Config.model_validate({**said, "inputs": inputs, "sink": sink, **more})
    assert leaves_bundled(find_job(name), config) is bundled
