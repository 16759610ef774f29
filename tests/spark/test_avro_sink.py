"""Rows leave as Avro, with the number that a registry gives their schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.contracts.errors import RegistryRefused, RegistryUnavailable
from headrace.contracts.serde.registered import Schema, Schemas
from headrace.services.kafka.registry_client import RegistryClient
from headrace.spark_jobs.jobs.registered import encode_of
from headrace.spark_jobs.operators.columns import RESULTS_SCHEMA
from headrace.spark_jobs.read import registry as read_registry
from headrace.spark_jobs.read.registry import RegistryAccess
from headrace.spark_jobs.shapes import CHANGED, CORRECTED, DEAD, JOINED, LATE
from headrace.spark_jobs.write.aim import Targets, aimed
from headrace.spark_jobs.write.avro import avro_of
from tests.kafka.fixtures import SharedKafka
from tests.runtime.registry_server import PASSWORD, USER, RegistryServer, registry_server
from tests.spark.test_query_job import Shop, order, price, row

TOPIC = "orders.priced"
COLUMNS = (
    StructType()
    .add("key", StringType())
    .add("cents", LongType())
    .add("at", TimestampType())
    .add("rate", DecimalType(9, 2))
    .add("raw", BinaryType())
    .add("tags", ArrayType(StringType()))
    .add("inner", StructType().add("x", IntegerType()))
    .add("day", DateType())
)
ROW = {
    "key": "é",
    "cents": 7,
    "at": "1970-01-01T00:00:00.000007Z",
    "rate": 12.34,
    "raw": "AAE=",
    "tags": ["a", None],
    "inner": {"x": 1},
    "day": "2025-10-09",
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    # A machine that stands still for ten seconds is no registry that is away.
    monkeypatch.setattr(read_registry, "_TIMEOUT_S", 180.0)
    with registry_server() as server:
        yield server


def access(server: RegistryServer) -> RegistryAccess:
    """The registry, with its login."""
    said = {"url": server.url, "username": USER, "password": PASSWORD}
    return RegistryAccess.model_validate(said)


def test_rows_are_avro_and_all_else_leaves_as_it_came(
    spark: SparkSession, registry: RegistryServer
) -> None:
    registry.register("something-else", '"string"')
    encode = encode_of(TOPIC, access(registry), COLUMNS)
    written = json.dumps(ROW).encode()
    made = [(JOINED, written), (CORRECTED, written), (CHANGED, None), (CHANGED, b'{"key": "k"}')]
    asides = [(LATE, b"{}"), (DEAD, b"\xff")]
    kinds = dict(column.split() for column in RESULTS_SCHEMA.split(", "))
    kinds["headers"] = "array<struct<key:string,value:binary>>"
    others = [f"CAST(NULL AS {kind}) {name}" for name, kind in kinds.items()]
    results = spark.createDataFrame(made + asides, "verdict STRING, value BINARY").selectExpr(
        "*", *(one for one in others if one.split()[-1] not in {"verdict", "value"})
    )
    rows = aimed(results, Targets(TOPIC, None), encode).select("note", "value").collect()
    values = [None if value is None else bytes(value) for _, value in rows]
    assert [note for note, _ in rows] == [said for said, _ in made + asides]
    assert values[2:3] + values[4:] == [None, b"{}", b"\xff"]
    assert values[0] == values[1]
    schemas = Schemas()
    schemas.put(2, Schema("AVRO", avro_of(TOPIC, COLUMNS)))
    found: Any = schemas.read_field(values[0] or b"", ())
    at = "1970-01-01T00:00:00.000007+00:00"
    assert found == {**ROW, "at": at, "rate": "12.34"}
    assert schemas.read_field(values[3] or b"", ()) == dict.fromkeys(ROW) | {"key": "k"}


def test_a_schema_is_registered_once(registry: RegistryServer) -> None:
    for _ in range(2):
        encode_of(TOPIC, access(registry), COLUMNS)
        assert registry.numbers("orders.priced-value") == [1]
    encode_of(TOPIC, access(registry), StructType().add("key", StringType()))
    assert registry.numbers("orders.priced-value") == [1, 2]
    # A login that may only look up is enough for a schema that is there.
    registry.refuses = "nothing more is taken"
    encode_of(TOPIC, access(registry), COLUMNS)
    assert registry.numbers("orders.priced-value") == [1, 2]


def test_a_schema_that_does_not_fit_is_one_sentence(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.refuses = "reader type long, writer type string"
    with pytest.raises(RegistryRefused) as refused:
        encode_of(TOPIC, access(registry), COLUMNS)
    assert str(refused.value) == (
        f"the schema registry {registry.url} does not take the schema of the rows as the next of"
        " `orders.priced-value` (reader type long, writer type string); select columns that fit,"
        " or name another topic"
    )
    registry.wants_login = True
    with pytest.raises(RegistryRefused, match="refuses this job"):
        encode_of(TOPIC, RegistryAccess(url=registry.url), COLUMNS)
    registry.answer = 200, b"{}"
    with pytest.raises(RegistryRefused, match="answers without a schema"):
        encode_of(TOPIC, access(registry), COLUMNS)
    registry.answer = 404, b"<html>"
    with pytest.raises(RegistryRefused, match="answers 404, as no schema registry does"):
        encode_of(TOPIC, access(registry), COLUMNS)
    monkeypatch.setattr(read_registry, "_WITHIN_S", 0.0)
    registry.answer, registry.is_away = None, True
    with pytest.raises(RegistryUnavailable, match="it answers 503"):
        encode_of(TOPIC, access(registry), COLUMNS)


@pytest.mark.long("spark", why="a job and a broker of its own; its parts are tested above")
def test_a_job_writes_avro_that_other_readers_read(
    kafka: SharedKafka, tmp_path: Path, registry: RegistryServer
) -> None:
    shop = Shop(kafka.clients, tmp_path)
    topic = shop.topic("orders.priced")
    shop.replace(f'hr.kafka("{topic}")', f'hr.kafka("{topic}", value="avro", registry=REGISTRY)')
    shop.replace(
        "import headrace as hr\n", f'import headrace as hr\n\nREGISTRY = "{registry.url}"\n'
    )
    shop.send("prices", price(b"nut", 5, 1_000), price(b"end", 1, 100_000))
    shop.send("orders", order(b"nut", "o1", 2, 2_000), order(b"nut", "o0", 2, 500))
    shop.send("orders", order(b"end", "e", 1, 100_000))
    for _ in range(2):
        ended = shop.run()
        assert ended.returncode == 0, ended.stderr
    (number,) = registry.numbers(f"{topic}-value")
    schemas = Schemas()
    schemas.put(number, RegistryClient(registry.url, None, None).schema(number))
    found = [schemas.read_field(one.value or b"", ()) for one in kafka.clients.consume_all(topic)]
    assert row("o1", 10) in found
    assert row("o0", None) in found
    # A registry that refuses the schema of changed columns ends the job before it reads.
    registry.refuses = "total_cents is missing"
    shop.replace("quantity * price_cents AS total_cents", "quantity * price_cents AS cents")
    ended = shop.run()
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()[-1:]
    assert "does not take the schema of the rows" in sentence
