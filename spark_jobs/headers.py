"""Convert headers between Kafka's source and sink, and text between Spark and Python.

Kafka's source and sink have headers as a list. For a list, Arrow's writer would look at all earlier
rows of a batch for each row. So headers travel as text: bytes in hexadecimal digits, `,` between
name and value, `;` between headers, and `-` for a null value. Both ends convert digits at once,
where JSON and base64 took a parser for each record.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StringType

from headrace.contracts.record import Headers

_SCHEMA = "array<struct<key:string,value:binary>>"
_NEXT, _VALUE, _NULL = ";", ",", "-"


def headers_with(*added: Column) -> Column:
    """Return the column `headers` with more behind them: structs of key and value."""
    return F.concat(F.coalesce(F.col("headers"), F.array().cast(_SCHEMA)), F.array(*added))


def packed_headers() -> Column:
    """Return the column `headers` as text, null for a record without any."""
    texts = F.transform("headers", _text_of)
    return F.when(F.size("headers") > 0, F.array_join(texts, _NEXT)).alias("headers")


def text_of_headers(frame: DataFrame) -> Column:
    """Return the column `headers` of a frame as text, which it may be already."""
    is_text = isinstance(frame.schema["headers"].dataType, StringType)
    return F.col("headers") if is_text else packed_headers()


def text_with(text: Column, *added: tuple[str, bytes | None]) -> Column:
    """Return headers as text with more behind them."""
    return F.concat_ws(_NEXT, text, F.lit(encode_headers(added)))


def _text_of(header: Column) -> Column:
    value = F.coalesce(F.hex(header["value"]), F.lit(_NULL))
    return F.concat(F.hex(header["key"]), F.lit(_VALUE), value)


def unpacked_headers() -> Column:
    """Return the column `headers` as a list again."""
    return F.transform(F.split("headers", _NEXT), _header_of).cast(_SCHEMA)


def _header_of(text: Column) -> Column:
    name, value = (F.split_part(text, F.lit(_VALUE), F.lit(part)) for part in (1, 2))
    return F.struct(
        F.unhex(name).cast("string").alias("key"),
        F.when(value != _NULL, F.unhex(value)).alias("value"),
    )


def joined_texts(text: str | None, added: str | None) -> str | None:
    """Return headers as text with more behind them, both None where there are none."""
    return _NEXT.join(filter(None, (text, added))) or None


def decode_headers(packed: str) -> Headers:
    """Decode headers that travelled as text."""
    headers: list[tuple[str, bytes | None]] = []
    for header in packed.split(_NEXT):
        name, _, value = header.partition(_VALUE)
        headers.append((_name_of(name), None if value == _NULL else _from_hex(value)))
    return tuple(headers)


def encode_headers(headers: Headers) -> str | None:
    """Encode headers as text; None for a record without any."""
    if not headers:
        return None
    texts = [
        _digits_of(name) + (_NULL if value is None else value.hex()) for name, value in headers
    ]
    return _NEXT.join(texts)


_from_hex = bytes.fromhex


@lru_cache(maxsize=1024)
def _name_of(digits: str) -> str:
    """Return a name; records of a topic have few of them, unlike values."""
    return _from_hex(digits).decode()


@lru_cache(maxsize=1024)
def _digits_of(name: str) -> str:
    return name.encode().hex() + _VALUE
