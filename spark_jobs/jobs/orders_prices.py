"""Orders, each with the price that its product had when it was ordered.

orders    key product, value {"order_id", "quantity"}
prices    key product, value {"price_cents"}, versioned
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.bulk import join_as_of
from headrace.spark_jobs.jobs.cold import FallBack
from headrace.spark_jobs.jobs.config import Input, InputTopics, JobConfig, JoinKind, TableFolder
from headrace.spark_jobs.jobs.hot_keys import spread_of
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import rows_in_columns, rows_with, texts_of, write_row
from headrace.spark_jobs.operators.operate import operate_for_sinks
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.read.json_text import read_json, read_quickly, text_of
from headrace.spark_jobs.read.parsed import columns_of_repeated, columns_of_written
from headrace.spark_jobs.read.schema import schema_of
from headrace.spark_jobs.shapes import FIELDS, JOINED, READ
from headrace.spark_jobs.versioned.tables import Versioned

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Objects


class Topics(InputTopics):
    """A table and a stream."""

    prices: Input
    orders: Input


class Config(JobConfig):
    """The topics, and how far back prices are known."""

    inputs: Topics
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record a price is still known."""
    join: JoinKind = "inner"
    """Whether an order without a price is left out, or stands alone."""
    release: Literal["stream-time", "progress"] = "progress"
    """When an order is joined: once both inputs have passed its time, or by its own grace."""
    grace_ms: DurationMs | None = None
    """How long an order waits by the orders' own time, with `release: stream-time`; without it, an
    order does not wait there. By progress no order waits for it."""
    corrections: bool = False
    """Whether an order is sent again when a price comes late: in Kafka with a header that says so,
    in a table with a column `corrected`. The state keeps all orders of the last `retention`."""
    cold_history: TableFolder | None = None
    """A Delta table of all prices ever, which this job keeps; it looks up orders older than
    `retention` there."""


class Order(BaseModel):
    """The value of an order."""

    order_id: str
    quantity: int


class Price(BaseModel):
    """The value of a price."""

    price_cents: int


class Row(BaseModel):
    """A priced order; a total that 64 bits cannot hold is null."""

    product: str
    order_id: str
    quantity: int
    price_cents: int | None
    total_cents: int | None


VALUES: Mapping[str, type[BaseModel]] = {"prices": Price, "orders": Order}
LOOKS_UP_BY = "key"
FOLDS_ROWS = False
_ORDER, _PRICE = schema_of(Order).fields, schema_of(Price).fields
_LONG_END = 1 << 63
_TIMED = ("partition", "offset", "timestamp_ms", "key", "value")


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Join each order with the price as of its own time."""
    prices = Topic("prices", inputs.number_of("prices"), Versioned(config.retention_ms))
    priced = LookUp(
        "orders-prices",
        prices,
        stream=inputs.number_of("orders"),
        join=config.join,
        grace_ms=config.grace_ms,
        release=config.release,
        corrects=config.corrections,
        asks_cold=config.cold_history is not None,
        row_of=row_of,
        rows_of=rows_of,
    )
    return operate_for_sinks(priced, inputs.arriving, spread_of(config), inputs.progress)


def rows_at_once(frames: Sequence[DataFrame], config: Config) -> DataFrame:
    """Join all orders of frames at rest with the price as of their own time."""
    prices, orders = frames
    # Spark parses each value once: a price travels as its number, and an order as its fields.
    number = F.col(f"{READ}.price_cents").cast("string").cast("binary")
    prices = prices.withColumn("value", number).drop(READ)
    orders = orders.withColumn("value", F.when(F.col("value").isNotNull(), F.lit(b"")))
    priced = join_as_of(orders, prices, config.join, (*_TIMED, READ))
    price_cents = F.col("table_value").cast("string").cast("bigint")
    row = {
        "product": F.expr("make_valid_utf8(CAST(key AS STRING))"),
        "order_id": F.col(f"{READ}.order_id"),
        "quantity": F.col(f"{READ}.quantity"),
        "price_cents": price_cents,
        "total_cents": F.try_multiply(F.col(f"{READ}.quantity"), price_cents),
    }
    fields = F.struct(*(column.alias(name) for name, column in row.items()))
    return priced.withColumns({"verdict": F.lit(JOINED), FIELDS: fields})


def fall_back(config: Config) -> FallBack | None:
    """Return where to join an order that is older than `retention`."""
    if config.cold_history is None:
        return None
    return FallBack(config.cold_history.folder, "prices", config.join, rows_with(row_of))


def row_of(key: bytes | None, value: bytes, table_value: bytes | None) -> bytes:
    """Make the row of an order and of the price that it met, if it met one."""
    order = read_quickly(value)
    order_id, quantity = order.get("order_id"), order.get("quantity")
    if type(order_id) is not str:
        order_id = text_of((read_json(value) or {}).get("order_id"))
    price_cents = None
    if table_value is not None:
        price_cents = read_quickly(table_value).get("price_cents")
    return write_row(
        {
            "product": None if key is None else _product_of(key),
            "order_id": order_id,
            "quantity": quantity,
            "price_cents": price_cents,
            "total_cents": _product(quantity, price_cents),
        }
    )


def rows_of(
    keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
) -> pa.StructArray | None:
    """Make the fields of many rows, None if a total needs more than 64 bits."""
    order_ids, quantities = columns_of_written(values.tolist(), _ORDER)
    (price_cents,) = columns_of_repeated(table_values, _PRICE)
    try:
        total_cents = pc.multiply_checked(quantities, price_cents)
    except pa.ArrowInvalid:
        return None
    columns = [texts_of(keys, _product_of), order_ids, quantities, price_cents, total_cents]
    return rows_in_columns([*Row.model_fields], columns)


def _product_of(key: bytes) -> str:
    return key.decode(errors="replace")


def _product(one: int | None, other: int | None) -> int | None:
    """Multiply two numbers; null if one is, or if 64 bits cannot hold what comes of it."""
    if one is None or other is None:
        return None
    product = one * other
    return product if -_LONG_END <= product < _LONG_END else None
