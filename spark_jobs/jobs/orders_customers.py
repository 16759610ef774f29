"""Orders, each with its customer: a table-table join by foreign key.

orders       key order, value {"customer", "amount_cents"}, versioned
customers    key customer, value {"name", "segment"}, versioned
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from pyspark.sql import DataFrame

from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.config import Input, InputTopics, JoinKind, TablesConfig
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import write_alike, write_json
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate_for_sinks
from headrace.spark_jobs.operators.topology import ForeignKeyStep, Topic
from headrace.spark_jobs.read.json_text import fields_of, read_json, text_of
from headrace.spark_jobs.versioned.tables import Versioned


class Topics(InputTopics):
    """Two tables."""

    customers: Input
    orders: Input


class Config(TablesConfig):
    """The topics, and how far back an update still counts."""

    inputs: Topics
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record of a table an update is still taken."""
    join: JoinKind = "inner"
    """Whether an order without a customer is left out, or stands alone."""


class Order(BaseModel):
    """The value of an order."""

    customer: str
    amount_cents: int


class Customer(BaseModel):
    """The value of a customer."""

    name: str
    segment: str


class Row(BaseModel):
    """An order and who ordered."""

    customer: str | None
    amount_cents: int | None
    name: str | None
    segment: str | None


VALUES: Mapping[str, type[BaseModel]] = {"customers": Customer, "orders": Order}


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Join each order to its customer, again whenever one of the two changes."""
    versioned = Versioned(config.retention_ms)
    joined = ForeignKeyStep(
        "orders-customers",
        Topic("orders", inputs.number_of("orders"), versioned),
        Topic("customers", inputs.number_of("customers"), versioned),
        foreign_key_of=_customer_of,
        joiner=_join,
        join=config.join,
    )
    spread = Spread(tasks=config.tasks)
    return operate_for_sinks(joined, inputs.arriving, spread, updates=config.updates)


def _customer_of(_order: bytes, value: bytes) -> bytes | None:
    customer = fields_of(value).get("customer")
    if type(customer) is str:
        return customer.encode()
    customer = text_of((read_json(value) or {}).get("customer"))
    return None if customer is None else customer.encode()


def _join(order: bytes | None, customer: bytes | None) -> bytes:
    quick = write_alike(_row(fields_of(order), fields_of(customer)))
    return quick or write_json(_row(read_json(order) or {}, read_json(customer) or {}))


def _row(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    return {
        "customer": order.get("customer"),
        "amount_cents": order.get("amount_cents"),
        "name": customer.get("name"),
        "segment": customer.get("segment"),
    }
