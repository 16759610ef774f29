"""Late records leave once while Spark writes the rows of a table, whichever attempt does it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from headrace.contracts.errors import ReplayDiffers
from headrace.contracts.topics import late_topic
from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA
from headrace.spark_jobs.operators.tabled import Tabled
from headrace.spark_jobs.write import kafka as write_kafka
from headrace.spark_jobs.write.aim import Targets
from headrace.spark_jobs.write.beside import MadeRows
from headrace.spark_jobs.write.bundled import COLUMNS, Aim, packed
from headrace.spark_jobs.write.kafka import KafkaSink, Written
from headrace.spark_jobs.write.parquet import ParquetSink
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.frames import run_to_end

ROWS, LATE, COUNTED = 500, 7, 2
WRITERS = 2


class _Died(Exception):
    """The driver is gone."""


def _bundles(topic: str) -> list[tuple[int, bytes]]:
    verdicts = ["joined"] * ROWS + ["late"] * LATE + ["count"] * COUNTED
    results = [
        {
            **dict.fromkeys(COLUMNS.names),
            "verdict": verdict,
            "reason": "taken" if verdict == "count" else None,
            "added": 5 if verdict == "count" else None,
            "task": place % WRITERS,
            "sequence": place,
            "topic": topic,
            "partition": 0,
            "offset": place,
            "timestamp_ms": place,
            "key": b"k%d" % place,
            "value": b'{"n":%d}' % place,
        }
        for place, verdict in enumerate(verdicts)
    ]
    halves = results[::2], results[1::2]
    return [
        (task, one)
        for task, half in enumerate(halves)
        for one in packed(pa.Table.from_pylist(half, COLUMNS))
    ]


def _none(_made: MadeRows) -> None:
    raise AssertionError


@pytest.mark.parametrize("hands_over", [True, False])
def test_late_records_beside_a_table_are_written_once(
    spark: SparkSession,
    kafka: SharedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hands_over: bool,  # noqa: FBT001 (pytest gives it)
) -> None:
    if not hands_over:
        monkeypatch.setattr(write_kafka, "HANDED_BYTES_MAX", 0)
    topic = fresh_name("beside")
    late = f"{topic}.late"
    bundles = spark.createDataFrame(_bundles(topic), BUNDLES_SCHEMA)
    bundles.repartitionByRange(WRITERS, "task").write.parquet(str(tmp_path / "in"))
    aim, table = Aim(Targets(None, late)), Tabled(StructType().add("n", LongType()), corrects=False)
    written: list[Written] = []

    def attempt(sink: KafkaSink, frame: DataFrame, batch_id: int, *, dies: bool = False) -> None:
        folder = str(tmp_path / f"out-{len(written)}-{dies}")

        def put(made: MadeRows) -> None:
            ParquetSink(topic, folder).write_made(made, batch_id)
            if dies:
                raise _Died

        written.append(sink.write_beside(frame, batch_id, aim, table, put))
        read = spark.read.parquet(folder).select("key", "n", "deleted").collect()
        assert sorted(map(tuple, read)) == sorted((f"k{n}", n, False) for n in range(ROWS))

    def write(frame: DataFrame, batch_id: int) -> None:
        frame = frame.repartitionByRange(WRITERS, "task")
        client = {"bootstrap.servers": kafka.bootstrap_servers}
        first, second, other = (KafkaSink(topic, client, {late_topic(late): 1}) for _ in range(3))
        with pytest.raises(_Died):
            attempt(first, frame, batch_id, dies=True)
        attempt(first, frame, batch_id)
        first.close()
        # As another driver that asks what was begun, and without asking.
        attempt(second, frame, batch_id)
        attempt(second, frame, batch_id)
        second.close()
        with pytest.raises(ReplayDiffers, match="comes out otherwise now"):
            other.write_beside(frame, batch_id, Aim(Targets(None, None)), table, _none)

    frame = spark.readStream.schema(BUNDLES_SCHEMA).parquet(str(tmp_path / "in"))
    run_to_end(frame.writeStream.foreachBatch(write), tmp_path / "checkpoint")
    assert [one.records for one in written] == [LATE] * 3
    assert [one.replayed for one in written] == [0 if hands_over else LATE, LATE, LATE]
    for one in written:
        assert [(note.note, note.reason, note.added) for note in one.notes] == [
            ("count", "taken", 5)
        ] * COUNTED
    assert len(kafka.clients.consume_all(late)) == LATE
