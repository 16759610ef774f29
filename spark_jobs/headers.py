"""Headers as Kafka's source and sink have them, and as text between Spark and Python.

As a list, which they are in Kafka's source and sink, they would cost Arrow's writer a look at all
earlier rows of a batch for each row.
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
    """The column `headers`, and more behind them: structs of key and value."""
    return F.concat(F.coalesce(F.col("headers"), F.array().cast(_SCHEMA)), F.array(*added))


def packed_headers() -> Column:
    """The column `headers` as text, null where there are none."""
    return F.when(F.size("headers") > 0, F.to_json("headers")).alias("headers")


def unpacked_headers() -> Column:
    """The same column as it was before."""
    return F.from_json("headers", _SCHEMA)


@lru_cache(maxsize=1024)
def decode_headers(packed: str) -> Headers:
    """Headers as Spark's `to_json` writes them."""
    return tuple(
        (header["key"], b64decode(header["value"]) if header.get("value") is not None else None)
        for header in json.loads(packed)
    )


@lru_cache(maxsize=1024)
def encode_headers(headers: Headers) -> str | None:
    """Headers as Spark's `from_json` reads them; None where there are none."""
    if not headers:
        return None
    return json.dumps(
        [
            {"key": name, "value": None if value is None else b64encode(value).decode()}
            for name, value in headers
        ]
    )
