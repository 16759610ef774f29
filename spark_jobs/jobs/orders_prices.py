"""Orders, each with the price that its product had when it was ordered.

orders    key product, value {"order_id", "quantity"}
prices    key product, value {"price_cents"}, versioned
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from contracts.time import DurationMs
from spark_jobs.jobs.config import Input, InputTopics, JobConfig, JoinKind
from spark_jobs.jobs.inputs import Inputs
from spark_jobs.jobs.rows import with_row
from spark_jobs.operators.frames import Spread
from spark_jobs.operators.operate import operate
from spark_jobs.operators.topology import LookUp, Topic
from spark_jobs.versioned.tables import Versioned


class Topics(InputTopics):
    """A table and a stream."""

    prices: Input
    orders: Input


class Config(JobConfig):
    """Which topics, and how far back prices are known."""

    inputs: Topics
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record a price is still known."""
    join: JoinKind = "inner"
    """Whether an order without a price is left out, or stands alone."""
    release: Literal["stream-time", "progress"] = "progress"
    """When an order is joined: once both inputs have passed its time, or by its own grace."""
    grace_ms: DurationMs | None = None
    """How long an order waits, by the orders' own time; without it, it waits for nothing."""


class Order(BaseModel):
    """The value of an order."""

    order_id: str
    quantity: int


class Price(BaseModel):
    """The value of a price."""

    price_cents: int


class Row(BaseModel):
    """A priced order."""

    product: str
    order_id: str
    quantity: int
    price_cents: int | None
    total_cents: int | None


VALUES: Mapping[str, type[BaseModel]] = {"prices": Price, "orders": Order}


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Join each order as of its own time."""
    prices = Topic("prices", inputs.number_of("prices"), Versioned(config.retention_ms))
    priced = LookUp(
        "orders-prices",
        prices,
        stream=inputs.number_of("orders"),
        join=config.join,
        grace_ms=config.grace_ms,
        release=config.release,
    )
    results = operate(priced, inputs.records, Spread(tasks=config.tasks), inputs.hearing)
    order = F.from_json(F.col("value").cast("string"), "order_id STRING, quantity BIGINT")
    price = F.from_json(F.col("table_value").cast("string"), "price_cents BIGINT")["price_cents"]
    row = F.struct(
        F.col("key").cast("string").alias("product"),
        order["order_id"].alias("order_id"),
        order["quantity"].alias("quantity"),
        price.alias("price_cents"),
        (order["quantity"] * price).alias("total_cents"),
    )
    return with_row(results, row)
