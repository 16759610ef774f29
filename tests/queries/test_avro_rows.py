"""Rows in Avro: the schema of their columns, what Avro does not take, and the sink's options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from pyspark.sql import types as spark
from pyspark.sql.types import (
    DayTimeIntervalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
)

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.stamp import Begun, digest_of, options_of, with_options
from headrace.spark_jobs.write.avro import avro_of, subject_of
from tests.queries.test_query_file import GOOD, written

URL = "http://127.0.0.1:8081"
TO_KAFKA = "sink: {kafka: {topic: orders.priced, value: avro, registry: {url: " + URL + "}}}"
IN_AVRO = GOOD.replace("sink: {delta: {folder: tables/priced, mode: upsert}}", TO_KAFKA)


def types_of(row: StructType) -> dict[str, Any]:
    """The branch beside null of each field."""
    schema = json.loads(avro_of("t", row))
    parse_schema(schema)
    assert all(field["default"] is None for field in schema["fields"])
    assert all(field["type"][0] == "null" for field in schema["fields"])
    return {field["name"]: field["type"][1] for field in schema["fields"]}


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (spark.BooleanType(), "boolean"),
        (spark.ByteType(), "int"),
        (spark.ShortType(), "int"),
        (spark.IntegerType(), "int"),
        (spark.LongType(), "long"),
        (spark.FloatType(), "float"),
        (spark.DoubleType(), "double"),
        (spark.StringType(), "string"),
        (spark.BinaryType(), "bytes"),
        (spark.DateType(), {"type": "int", "logicalType": "date"}),
        (spark.TimestampType(), {"type": "long", "logicalType": "timestamp-micros"}),
        (spark.TimestampNTZType(), {"type": "long", "logicalType": "local-timestamp-micros"}),
        (
            spark.DecimalType(9, 2),
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        ),
        (spark.ArrayType(spark.LongType()), {"type": "array", "items": ["null", "long"]}),
        (
            spark.MapType(spark.StringType(), spark.LongType()),
            {"type": "map", "values": ["null", "long"]},
        ),
    ],
)
def test_each_column_is_a_field_that_may_be_null(column: spark.DataType, field: Any) -> None:
    assert types_of(StructType().add("a", column, nullable=False)) == {"a": field}


def test_records_in_records_have_names_of_their_own() -> None:
    inner = StructType().add("x", IntegerType())
    outer = StructType().add("x", IntegerType()).add("b", inner)
    found = types_of(StructType().add("a", outer).add("b", spark.ArrayType(inner)))
    assert found["a"]["name"] == "t_a"
    assert found["a"]["fields"][1]["type"][1]["name"] == "t_a_b"
    assert found["b"]["items"][1]["name"] == "t_b"
    found = types_of(StructType().add("a", outer).add("a_b", inner))
    assert found["a_b"]["name"] == "t_a_b_"


@pytest.mark.parametrize(
    ("topic", "name"), [("orders.priced-2", "orders_priced_2"), ("2nd", "_2nd"), ("a_b", "a_b")]
)
def test_a_topic_names_record_and_subject(topic: str, name: str) -> None:
    schema = json.loads(avro_of(topic, StructType().add("a", IntegerType())))
    assert parse_schema(schema)
    assert schema["name"] == name
    assert subject_of(topic) == f"{topic}-value"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            StructType().add("a-b", IntegerType()),
            "the column `a-b` has a name that Avro does not take; select it `AS a_b`",
        ),
        (
            StructType().add("a", StructType().add("x y", IntegerType())),
            "the column `x y` has a name that Avro does not take; select it `AS x_y`",
        ),
        (
            StructType().add("a", DayTimeIntervalType()),
            "which Avro does not have; cast it, such as `CAST(a AS STRING) AS a`",
        ),
        (StructType().add("a", NullType()), "the column `a` is a void, which Avro does not have"),
        (
            StructType().add("a", MapType(IntegerType(), StringType())),
            "the column `a` is a map<int,string>, which Avro does not have",
        ),
    ],
)
def test_a_column_that_avro_lacks_is_named(row: StructType, sentence: str) -> None:
    with pytest.raises(JobInvalid) as refused:
        avro_of("t", row)
    assert sentence in str(refused.value)


def test_a_file_says_what_python_says(tmp_path: Path) -> None:
    _, config = load_job(written(tmp_path, IN_AVRO))
    query = hr.stream("orders", "a INT").join_as_of(hr.table("prices", "b INT", retention="1d"))
    sink = hr.kafka("orders.priced", value="avro", registry=URL)
    _, other = described(query, to=sink, name="x", servers="here:1", checkpoint="c")
    assert config.sink.kafka == other.sink.kafka
    assert config.sink.kafka is not None
    assert config.sink.kafka.registry is not None
    assert config.sink.kafka.registry.url == URL


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            ", registry: {url: http://127.0.0.1:8081}",
            "",
            "job.yaml:11:8: sink.kafka: `registry` is",
        ),
        ("value: avro, ", "", "`registry` does nothing for rows in JSON; add `value: avro`"),
        ("value: avro", "value: orc", "sink.kafka.value: `orc` is none of the choices; write"),
        ("{url: http", "{url: ftp", "sink.kafka.registry.url: this is not the address of one"),
        (URL, "http://a..b:8081", "registry.url: this is not the address of one registry; write"),
        (URL, "'http://[::1'", "registry.url: this is not the address of one registry; write it"),
    ],
)
def test_options_that_do_not_fit_are_told(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert old in IN_AVRO
    with pytest.raises(JobInvalid) as refused:
        load_job(written(tmp_path, IN_AVRO.replace(old, new)))
    assert sentence in str(refused.value)


def test_a_password_in_the_address_of_a_registry_is_refused_and_not_shown(tmp_path: Path) -> None:
    said = IN_AVRO.replace("{url: http://", "{url: http://ada:rosebud@")
    with pytest.raises(JobInvalid) as refused:
        load_job(written(tmp_path, said))
    assert "this is not the address of one registry; write it as https://" in str(refused.value)
    assert "rosebud" not in str(refused.value)


def test_a_checkpoint_notes_the_form_of_rows_but_no_registry(tmp_path: Path) -> None:
    said = IN_AVRO.replace(f"{{url: {URL}}}", f"{{url: {URL}, username: ada, password: secret}}")
    job, config = load_job(written(tmp_path, said))
    noted = options_of(config)
    assert noted["sink"]["kafka"] == {"topic": "orders.priced", "partitions": 4, "value": "avro"}
    # A micro-batch that was begun is finished with the login that the file has now.
    again = with_options(job, config, noted, Begun("id", 1))
    assert again == config
    _, elsewhere = load_job(written(tmp_path, said.replace("8081", "8082")))
    assert digest_of(options_of(elsewhere)) == digest_of(noted)


def test_a_checkpoint_of_rows_in_json_is_as_it_was(tmp_path: Path) -> None:
    _, config = load_job(written(tmp_path, IN_AVRO.replace(TO_KAFKA, "sink: {kafka: {topic: a}}")))
    assert options_of(config)["sink"]["kafka"] == {"topic": "a", "partitions": 4}
