"""The join of orders and prices as a query's file, with values in JSON, or in Avro by a registry.

The query makes the rows of the shipped job. In Avro the same records stand in topics of their own,
as Confluent's serializer writes them, and the rows leave in Avro as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from tests.bench.spark.cleaned import Filled, write
from tests.bench.spark.jobs import orders_prices
from tests.bench.spark.jobs.rows import Row
from tests.bench.spark.shipped import Shipped, run_described, topic_of
from tests.bench.spark.topics import RETENTION_MS
from tests.runtime.registry_server import RegistryServer

JSON, AVRO = "query-json", "query-avro"
QUERIES = (JSON, AVRO)
_QUERY = """\
SELECT o.key AS product, order_id, quantity, price_cents, quantity * price_cents AS total_cents
FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.key = p.key
"""
_COLUMNS = {"prices": "price_cents BIGINT", "orders": "order_id STRING, quantity BIGINT"}
_FIELDS: dict[str, list[dict[str, Any]]] = {
    "prices": [{"name": "price_cents", "type": "long"}],
    "orders": [
        {"name": "order_id", "type": "string"},
        {"name": "quantity", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
    ],
}
"""The fields of the inputs' values, those included that the query does not read."""
_FRAME_BYTES = 5
"""A zero byte and the schema's number stand before a value."""


def run(who: str, filled: Filled, servers: str, folder: Path) -> Shipped:
    """Run the query over all that the topics hold; what it made must be right."""
    return run_described(who, described(who, filled, servers, folder), filled, servers, folder)


def described(who: str, filled: Filled, servers: str, folder: Path) -> dict[str, object]:
    """A query's file, with nothing in it but what it must have."""
    name = topic_of(who, filled)
    access = {} if filled.registry is None else {"registry": {"url": filled.registry}}
    value = {"value": "avro"} if access else {}
    prices, orders = (
        {**filled.inputs[each]._asdict(), "schema": _COLUMNS[each], **access}
        for each in ("prices", "orders")
    )
    return {
        "query": _QUERY,
        "name": name,
        "servers": servers,
        "checkpoint": str(folder / "checkpoint"),
        "streams": {"orders": orders},
        "tables": {"prices": {**prices, "retention": f"{RETENTION_MS}ms"}},
        "sink": {"kafka": {"topic": name, **value, **access}},
    }


def fill(servers: str, orders: int, registry: RegistryServer) -> Filled:
    """Make topics of the same records in Avro, and write everything as sidecars do."""
    size, inputs = orders_prices.drawn(orders)
    encoded = {}
    for name, records in inputs.items():
        encode = encoder(name, registry)
        values = [None if value is None else encode(json.loads(value)) for value in records.values]
        encoded[name] = records._replace(values=values)
    written = write(servers, f"{orders_prices.JOB}-avro", size, encoded)
    wanted = orders_prices.digest_of(orders_prices.joined(inputs["prices"], inputs["orders"]))
    judge = partial(orders_prices.judge, row_of=decoder(registry))
    return Filled(orders_prices.JOB, size, *written, wanted, judge, registry=registry.url)


def encoder(name: str, registry: RegistryServer) -> Callable[[Row], bytes]:
    """Register the schema of an input's values; return what writes them."""
    said = {"type": "record", "name": name, "fields": _FIELDS[name]}
    number = registry.register(f"{name}.cleaned-value", json.dumps(said))
    schema, frame = parse_schema(said), b"\0" + number.to_bytes(_FRAME_BYTES - 1)

    def encode(row: Row) -> bytes:
        body = BytesIO()
        schemaless_writer(body, schema, row)
        return frame + body.getvalue()

    return encode


def decoder(registry: RegistryServer) -> Callable[[bytes], Row]:
    """Return what reads a row by the schema whose number stands before it."""

    @cache
    def schema_of(number: int) -> Any:
        _, shown = registry.judge(f"/schemas/ids/{number}", {})
        return parse_schema(json.loads(shown["schema"]))

    def decode(value: bytes) -> Row:
        number = int.from_bytes(value[1:_FRAME_BYTES])
        row: Any = schemaless_reader(BytesIO(value[_FRAME_BYTES:]), schema_of(number), None)
        return dict(row)

    return decode
