"""Convert headers between Kafka's source and sink, and text between Spark and Python.

Kafka's source and sink have headers as a list. For a list, Arrow's writer would look at all earlier
rows of a batch for each row.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.record import Headers

_SCHEMA = "array<struct<key:string,value:binary>>"


def headers_with(*added: Column) -> Column:
    """Return the column `headers` with more behind them: structs of key and value."""
    return F.concat(F.coalesce(F.col("headers"), F.array().cast(_SCHEMA)), F.array(*added))


def packed_headers() -> Column:
    """Return the column `headers` as text, null for a record without any."""
    return F.when(F.size("headers") > 0, F.to_json("headers")).alias("headers")


def unpacked_headers() -> Column:
    """Return the column `headers` as a list again."""
    return F.from_json("headers", _SCHEMA)


@lru_cache(maxsize=1024)
def decode_headers(packed: str) -> Headers:
    """Decode headers that Spark's `to_json` wrote."""
    return tuple(
        (header["key"], b64decode(header["value"]) if header.get("value") is not None else None)
        for header in json.loads(packed)
    )


@lru_cache(maxsize=1024)
def encode_headers(headers: Headers) -> str | None:
    """Encode headers for Spark's `from_json`; None for a record without any."""
    if not headers:
        return None
    return json.dumps(
        [
            {"key": name, "value": None if value is None else b64encode(value).decode()}
            for name, value in headers
        ]
    )
