"""KIP-923's own table through topics and Spark, in a driver of its own with executors of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from headrace.contracts.errors import HeadraceError
from headrace.contracts.progress import LAYOUT, CleanedBy, Progress, cleaned_by_row, progress_row
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic, progress_topic
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.read.decode import AvroValue, checked, decoded
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.read.topics import read_cleaned
from headrace.spark_jobs.read.written_by import CleanedTopic
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.versioned.tables import Versioned
from tests.kafka.clients import Clients, fresh_name
from tests.spark.frames import SCHEMA, run_to_end

MASTER = "local-cluster[2,1,1024]"
PRICES = Topic("prices", 0, Versioned(100))
Said = tuple[str, int, str | None]
"""Key, timestamp and value of a record."""
PRICES_FIRST: list[Said] = [("1", 1, "a"), ("2", 1, "b"), ("3", 1, "c")]
PRICES_LATER: list[Said] = [("2", 2, "x"), ("3", 3, "y")]
ORDERS_FIRST: list[Said] = [
    ("1", 4, "d"), ("2", 1, "e"), ("3", 2, "f"), ("2", 2, "g"), ("3", 3, "h"),
]  # fmt: skip
ORDERS_LATER: list[Said] = [("9", 14, "end")]
AVRO = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "pieces", "type": "int"}],
}
SPEC = {"operators": [{"reorder": {"grace": "30s"}}]}


def run_proposal(servers: str, folder: Path) -> None:
    """Run all of it, and leave what came out in `found.json`."""
    spark = open_session(
        "proposal",
        master=MASTER,
        shuffle_partitions=2,
        settings={"spark.ui.enabled": "false", "spark.driver.memory": "1g"},
        connectors=CONNECTORS[:2],
    )
    found = _Proposal(spark, Clients(servers), folder).found()
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


class _Proposal:
    def __init__(self, spark: SparkSession, clients: Clients, folder: Path) -> None:
        self._spark = spark
        self._clients = clients
        self._folder = folder
        self._prices, self._orders = (self._cleaned(name) for name in ("prices", "orders"))

    def found(self) -> dict[str, Any]:
        """The output of each of two runs, the second of them from the checkpoint."""
        names = ("grace", "no grace", "progress", "progress, two records at a time")
        runs: dict[str, list[list[str]]] = {name: [] for name in names}
        for run in range(2):
            self._write(run)
            for name, told in runs.items():
                told.append(self._run(name))
        return {**runs, "refused": self._refusals(), "avro": self._avro()}

    def _cleaned(self, name: str) -> str:
        topic = fresh_name(name)
        for spec in (cleaned_topic(topic), progress_topic(topic)):
            self._clients.make_topic(spec.name, 1, spec.settings())
        by = CleanedBy(name, LAYOUT, "source", SPEC)
        self._tell(topic, cleaned_by_row(by))
        return topic

    def _write(self, run: int) -> None:
        prices = (PRICES_FIRST, PRICES_LATER)[run]
        orders = (ORDERS_FIRST, ORDERS_LATER)[run]
        self._clients.produce_committed(self._prices, _records(self._prices, prices), f"p{run}")
        aborted = _records(self._orders, [("2", 1, "never")])
        self._clients.produce_aborted(self._orders, aborted, f"a{run}")
        self._clients.produce_committed(self._orders, _records(self._orders, orders), f"o{run}")
        for topic, reached_ms in ((self._prices, (2, 15)[run]), (self._orders, (4, 15)[run])):
            last = self._clients.consume_all(topic)[-1].offset
            self._tell(topic, progress_row(Progress(0, reached_ms, reached_ms, "raw", 0, last)))

    def _tell(self, topic: str, row: tuple[bytes, bytes]) -> None:
        name = progress_topic(topic).name
        self._clients.produce(name, [Record(*row, 1, (), name, 0, None)])

    def _run(self, name: str) -> list[str]:
        by_progress = name.startswith("progress")
        topics = self._topics("prices", "orders") if by_progress else self._topics(None, None)
        source = Source(self._clients.servers, batch_records=2 if "two records" in name else None)
        cleaned = read_cleaned(self._spark, source, topics)
        join = LookUp(
            "join",
            PRICES,
            stream=1,
            grace_ms=10 if name == "grace" else None,
            release="progress" if by_progress else "stream-time",
        )
        names = {each.input: each.topic for each in topics}
        progress = InputProgress(cleaned.progress, cleaned.partitions, names, cleaned.begins)
        return self._joined(operate(join, cleaned.records, Spread("partition"), progress), name)

    def _joined(self, results: DataFrame, name: str) -> list[str]:
        told: list[str] = []

        def take(frame: DataFrame, _: int) -> None:
            rows = frame.where("verdict = 'joined'").orderBy("sequence").collect()
            told.extend(
                f"{row.key.decode()}@{row.timestamp_ms}={row.value.decode()}"
                f"+{row.table_value.decode()}"
                for row in rows
            )

        checkpoint = self._folder / f"checkpoint of {name}"
        run_to_end(results.writeStream.foreachBatch(take), checkpoint)
        return told

    def _topics(self, prices: str | None, orders: str | None) -> list[CleanedTopic]:
        return [CleanedTopic(0, self._prices, prices), CleanedTopic(1, self._orders, orders)]

    def _refusals(self) -> list[str]:
        """Return the refusals of jobs that expect something else."""
        other = {"operators": [{"reorder": {"grace": "5s"}}]}
        wrong = [
            CleanedTopic(0, self._prices, "others"),
            CleanedTopic(0, self._prices, "prices", other),
            CleanedTopic(0, "nowhere"),
        ]
        source = Source(self._clients.servers)
        return [_refusal(partial(read_cleaned, self._spark, source, [each])) for each in wrong]

    def _avro(self) -> dict[str, list[Any]]:
        """Read values in Avro, with and without a registry's number before them."""
        whole = encode_avro(AVRO, {"sku": "a", "pieces": 7})
        framed = b"\0" + (3).to_bytes(4, "big") + whole
        other = b"\0" + (4).to_bytes(4, "big") + whole
        schema = StructType([StructField("pieces", LongType(), nullable=False)])
        text = json.dumps(AVRO)
        return {
            "plain": self._read(AvroValue(schema, text), [whole, b"", None]),
            "framed": self._read(AvroValue(schema, registered={3: text}), [framed, other, whole]),
        }

    def _read(self, value: AvroValue, values: list[bytes | None]) -> list[Any]:
        rows: list[tuple[Any, ...]] = [
            (0, "t", 0, place, 0, b"k", each, []) for place, each in enumerate(values)
        ]
        frame = checked(self._spark.createDataFrame(rows, SCHEMA), {0: value})
        read = decoded(frame, "value", value).orderBy("offset").collect()
        return [[row.aside is not None, row.value and row.value.pieces] for row in read]


def _refusal(read: Callable[[], object]) -> str:
    try:
        read()
    except HeadraceError as error:
        return str(error)
    return "was not refused"


def encode_avro(schema: dict[str, Any], fields: dict[str, Any]) -> bytes:
    """A record in Avro, with nothing before it."""
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, fields)
    return written.getvalue()


def _records(topic: str, said: list[Said]) -> list[Record]:
    return [
        Record(key.encode(), None if value is None else value.encode(), at, (), topic, 0, None)
        for key, at, value in said
    ]
