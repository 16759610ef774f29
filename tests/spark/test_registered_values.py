"""Columns of values that name their schemas in a registry, which speaks HTTP on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

import headrace as hr
from headrace.contracts.dead_letter import MESSAGE_HEADER
from headrace.contracts.errors import JobInvalid, RegistryRefused, RegistryUnavailable
from headrace.contracts.record import Record
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.headers import decode_headers, packed_headers
from headrace.spark_jobs.operators.arriving import RegisteredCheck, marked
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.read import registry as read_registry
from headrace.spark_jobs.read.decode import RegisteredValue, checked
from headrace.spark_jobs.read.json_text import JsonCheck
from headrace.spark_jobs.read.registry import AsJson, Asked, RegistryAccess, as_json
from headrace.spark_jobs.shapes import DEAD, JOINED
from tests.bench.processes import memory_bytes
from tests.contracts.registered import (
    CLICK_AVRO,
    avro,
    click_file,
    framed,
    message_of,
    protobuf,
    serialized,
)
from tests.queries.test_query_file import GOOD, written
from tests.runtime.registry_server import PASSWORD, USER, RegistryServer, registry_server
from tests.spark.frames import SCHEMA, Row
from tests.spark.queried import run_in_spark

FAR_MS = 36_000_000
PRICE = json.dumps(
    {
        "type": "record",
        "name": "Price",
        "fields": [
            {"name": "price_cents", "type": ["null", "long"]},
            {"name": "since", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "rate",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    # A machine that stands still for ten seconds is no registry that is away.
    monkeypatch.setattr(read_registry, "_TIMEOUT_S", 180.0)
    with registry_server() as server:
        yield server


def asked(server: RegistryServer, login: str = "") -> Asked:
    """Name a registry as a worker is told of it."""
    return Asked(server.url, login, "")


def test_values_of_every_kind_are_json(registry: RegistryServer) -> None:
    by_avro = registry.register("clicks-value", CLICK_AVRO)
    by_json = registry.register("clicks-value", "{}", "JSON")
    file = click_file()
    by_protobuf = registry.register("clicks-value", serialized(file), "PROTOBUF")
    message = message_of(file, "web.Click")
    values = [
        avro(by_avro, CLICK_AVRO, {"id": "é", "at": 5}),
        framed(by_json, b'{"id": "2", "at": 6}'),
        protobuf(by_protobuf, [1], message(id="3", at=7)),
        avro(by_avro, CLICK_AVRO, {"id": "4", "at": 8}),
        None,
    ]
    found = [as_json(value, asked(registry)) for value in values]
    assert [None if one.json is None else json.loads(one.json) for one in found] == [
        {"id": "é", "at": 5},
        {"id": "2", "at": 6},
        {"id": "3", "at": 7},
        {"id": "4", "at": 8},
        None,
    ]
    assert all(one.problem is None for one in found)
    assert registry.asked.count(f"/schemas/ids/{by_avro}") == 1, "a schema is looked up once"
    # Of some depths, a value can be read and not be written.
    nested = [framed(by_json, b"[" * depth + b"]" * depth) for depth in (1, *range(900, 1_100, 5))]
    told = {as_json(one, asked(registry)).problem for one in nested}
    assert {None, f"it has too many values in one another, by schema {by_json}"} < told


def test_values_as_json_take_the_memory_of_their_bytes(registry: RegistryServer) -> None:
    value = avro(registry.register("clicks-value", CLICK_AVRO), CLICK_AVRO, {"id": "é", "at": 5})
    before = memory_bytes(os.getpid())
    read = [as_json(value, asked(registry)) for _ in range(50_000)]
    assert memory_bytes(os.getpid()) - before < 1000 * len(read)


def test_an_unreadable_value_says_why_and_names_its_number(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = registry.register("clicks-value", CLICK_AVRO)
    broken, unknown = framed(number, b"\xff"), framed(number + 1, b"")
    assert as_json(b"{}", asked(registry)).problem == (
        "the value does not begin with a zero byte and the number of a schema"
    )
    assert f"not of its schema {number}" in (as_json(broken, asked(registry)).problem or "")
    missing = AsJson(None, f"the registry has no schema {number + 1} (Schema 2 not found)")
    assert as_json(unknown, asked(registry)) == missing
    assert as_json(unknown, asked(registry)) == missing
    assert registry.asked.count(f"/schemas/ids/{number + 1}") == 1, "it is not asked each time"
    # A schema that is registered later is found, after a while.
    monkeypatch.setattr(read_registry, "_MISSING_S", 0.0)
    as_json(framed(number + 2, b""), asked(registry))
    registry.register("clicks-value", CLICK_AVRO)
    registry.register("clicks-value", "{}", "JSON")
    assert as_json(framed(number + 2, b"{}"), asked(registry)) == AsJson(b"{}", None)


def test_a_registry_that_is_away_or_refuses_ends_the_micro_batch(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_registry, "_WITHIN_S", 0.0)
    number = registry.register("clicks-value", CLICK_AVRO)
    value = avro(number, CLICK_AVRO, {"id": "1", "at": 5})
    registry.is_away = True
    with pytest.raises(RegistryUnavailable, match="does not answer: it answers 503"):
        as_json(value, asked(registry))
    registry.is_away, registry.wants_login = False, True
    with pytest.raises(RegistryRefused, match="refuses this job"):
        as_json(value, asked(registry))
    assert as_json(value, asked(registry, f"{USER}:{PASSWORD}")).problem is None
    registry.answer = 200, b"{}"
    other = framed(number + 7, b"")
    with pytest.raises(RegistryRefused, match="answers without a schema"):
        as_json(other, asked(registry, f"{USER}:{PASSWORD}"))
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        as_json(value, Asked("http://127.0.0.1:1", "", ""))


def test_a_registry_is_an_address_or_options(tmp_path: Path) -> None:
    said: dict[str, Any] = {"url": "https://here", "username": "ada", "password": "s"}
    stream = hr.stream("orders", "a INT", registry=said)
    assert stream.source.registry == RegistryAccess.model_validate(said)
    assert hr.stream(
        "orders", "a INT", registry=said | {"url": "http://[::1]:8081"}
    ).source.registry
    assert hr.stream("orders", "a INT", registry="https://here").source.registry is not None
    assert "in the schemas of https://here" in stream.explain()
    for wrong, sentence in [
        ({"url": "here"}, "`registry.url`: "),
        ({"adress": "http://here"}, "`registry"),
        ({"url": "http://here", "password": "s"}, "`username` is missing"),
        (said | {"url": "http://here"}, "`url` would send a password in clear elsewhere; write ht"),
        ({"url": "https://here", "ca-file": str(tmp_path / "none")}, "holds no certificate"),
        ({"url": "http://here", "ca-file": "ca.pem"}, "`ca-file` does nothing without TLS; write"),
    ]:
        with pytest.raises(JobInvalid) as refused:
            hr.stream("orders", "a INT", registry=wrong)
        assert sentence in str(refused.value)
    text = GOOD.replace("schema: price_cents BIGINT", "schema: price_cents BIGINT, registry: {}")
    with pytest.raises(JobInvalid, match=r"tables.prices.registry.url: `url` is missing; add it"):
        load_job(written(tmp_path, text))
    table = hr.table("t", "b INT", retention="1d", registry="http://here")
    with pytest.raises(JobInvalid, match="keeps a history in `cold`"):
        QueryJob(hr.stream("s", "a INT").join_as_of(table, history="cold"))


def test_columns_are_read_by_the_schemas_that_values_name(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer
) -> None:
    by_avro = registry.register("prices-value", PRICE)
    by_json = registry.register("orders-value", "{}", "JSON")
    prices = hr.table(
        "prices",
        "price_cents BIGINT, since TIMESTAMP, rate DECIMAL(9, 2)",
        retention="30d",
        pipeline=None,
        registry=registry.url,
    )
    orders = hr.stream("orders", "order_id STRING NOT NULL", pipeline=None, registry=registry.url)

    def price(cents: int | None) -> bytes:
        # Schemaless writing takes a decimal's bytes as they are: 12.34.
        return avro(by_avro, PRICE, {"price_cents": cents, "since": 7, "rate": b"\x04\xd2"})

    def row(side: int, offset: int, at_ms: int, value: bytes | None, key: bytes = b"p") -> Row:
        return side, Record(key, value, at_ms, (), str(side), 0, offset)

    unknown, bare = framed(99, b"{}"), b'{"order_id": "bare"}'
    rows = [
        row(0, 0, 100, price(7)),
        row(0, 1, 300, price(9)),
        row(0, 2, FAR_MS, price(None), b"end"),
        row(1, 0, 200, framed(by_json, b'{"order_id": "a"}')),
        row(1, 1, 210, unknown),
        row(1, 2, 220, bare),
        row(1, 3, 230, framed(by_json, b'{"other": 1}')),
        row(1, 4, FAR_MS, framed(by_json, b'{"order_id": "end"}'), b"end"),
    ]
    query = orders.join_as_of(prices).select("order_id", "price_cents", "since", "rate")
    ran = run_in_spark(spark, tmp_path, query, rows)
    (found,) = ran.of(JOINED)
    assert found == (
        "p",
        {
            "order_id": "a",
            "price_cents": 7,
            "since": "1970-01-01T00:00:00.000007Z",
            "rate": 12.34,
        },
    )
    dead = {
        bytes(each["value"]): {one["key"]: bytes(one["value"]).decode() for one in each["headers"]}
        for each in ran.records
        if each["verdict"] == DEAD
    }
    assert dead[unknown][MESSAGE_HEADER] == "the registry has no schema 99 (Schema 99 not found)"
    assert "does not begin with a zero byte" in dead[bare][MESSAGE_HEADER]
    left = dead[framed(by_json, b'{"other": 1}')][MESSAGE_HEADER]
    assert left == "the field `order_id` is missing, null, or of another type"


def test_tasks_read_values_as_spark_does(spark: SparkSession, registry: RegistryServer) -> None:
    number = registry.register("prices-value", PRICE)
    by_json = registry.register("prices-value", "{}", "JSON")
    price = avro(number, PRICE, {"price_cents": 7, "since": 7, "rate": b"\x04\xd2"})
    none = avro(number, PRICE, {"price_cents": None, "since": 7, "rate": b"\x04\xd2"})
    values: list[tuple[bytes | None, bytes | None]] = [
        (b"k", price),
        (b"k", None),
        (b"k", none),
        (None, price),
        (b"k", framed(99, b"{}")),
        (b"k", b"{}"),
        (b"k", framed(by_json, b'{"price_cents": "7"}')),
        (b"k", framed(by_json, b'{"price_cents": 1, "rate": 1.50, "since": {"a": 1}}')),
        (b"k", framed(by_json, b'{"price_cents": 2, "since": 36893488147419103232}')),
        (None, b"{}"),
    ]
    rows: list[Any] = [
        (0, "prices", 0, at, at, key, value, [("h", b"1")], None)
        for at, (key, value) in enumerate(values)
    ]
    # Another input has no check, and its values stay as they are.
    rows.append((1, "orders", 0, 0, 0, b"k", price, None, None))
    records = spark.createDataFrame(rows, f"{SCHEMA}, aside STRING")
    schema = StructType().add("price_cents", LongType(), nullable=False)
    schema = schema.add("since", StringType()).add("rate", StringType())
    of_input = RegisteredValue(schema, asked(registry))
    told = checked(records, {0: of_input}).orderBy("input", "offset").collect()
    batch = records.withColumn("headers", packed_headers()).coalesce(1).toArrow().combine_chunks()
    check = RegisteredCheck(JsonCheck(schema), asked(registry))
    read = marked(batch.to_batches()[0], {0: check, 1: None}).to_pylist()
    for row, one in zip(told, read, strict=True):
        theirs = [(each["key"], bytes(each["value"])) for each in row["headers"] or ()]
        assert [*(decode_headers(one["headers"]) if one["headers"] else ())] == theirs
        assert json.loads(one["aside"] or "null") == json.loads(row["aside"] or "null")
        if one["value"] != row["value"]:
            assert json.loads(one["value"]) == json.loads(row["value"])
    assert sum(one["aside"] is not None for one in read) == 6
