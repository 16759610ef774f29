"""Headers cross between Spark and Python as text, which both ends read alike."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from headrace.contracts.record import Headers
from headrace.spark_jobs.headers import (
    decode_headers,
    encode_headers,
    packed_headers,
    unpacked_headers,
)

_LISTED = "headers array<struct<key: string, value: binary>>"
_SOME: list[Headers] = [
    (("id", b"\x00\xff"), ("", b""), ("é;,-", None), ("id", b";,-")),
    (("empty", None),),
    (("", None),),
    (),
]


@pytest.mark.parametrize("headers", _SOME)
def test_headers_survive_the_way_into_python_and_back(
    spark: SparkSession, headers: Headers
) -> None:
    listed = spark.createDataFrame([([*headers],)], _LISTED)
    ((text,),) = listed.select(packed_headers()).collect()
    assert (() if text is None else decode_headers(text)) == headers
    back = spark.createDataFrame([(encode_headers(headers),)], "headers string")
    ((read,),) = back.select(unpacked_headers().alias("headers")).collect()
    assert tuple(map(_pair, read or ())) == headers


def _pair(header: Row) -> tuple[str, bytes | None]:
    return header["key"], None if header["value"] is None else bytes(header["value"])


def test_headers_need_no_parser(spark: SparkSession) -> None:
    listed = spark.createDataFrame([], _LISTED)
    frame = listed.select(packed_headers()).select(unpacked_headers().alias("headers"))
    assert frame.schema == listed.schema
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 (no public way)
    assert "json" not in plan.lower()
