"""Customers, each with the subscription of the same key: a table-table join by primary key.

customers        key customer, value {"name"}, versioned
subscriptions    key customer, value {"plan"}, versioned
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field
from pyspark.sql import DataFrame

from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.config import Input, InputTopics, TablesConfig
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import write_alike, write_json
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate_for_sinks
from headrace.spark_jobs.operators.topology import JoinStep, Topic
from headrace.spark_jobs.read.json_text import fields_of, read_json
from headrace.spark_jobs.versioned.tables import Versioned


class Topics(InputTopics):
    """Two tables."""

    customers: Input
    subscriptions: Input


class Config(TablesConfig):
    """The topics, and how far back an update still counts."""

    inputs: Topics
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record of a table an update is still taken."""
    join: Literal["inner", "left", "outer"] = "left"
    """Which customers and subscriptions may stand alone."""


class Customer(BaseModel):
    """The value of a customer."""

    name: str


class Subscription(BaseModel):
    """The value of a subscription."""

    plan: str


class Row(BaseModel):
    """A customer and the plan it has."""

    name: str | None
    plan: str | None


VALUES: Mapping[str, type[BaseModel]] = {"customers": Customer, "subscriptions": Subscription}


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Join both tables; an update out of order changes nothing that is newer."""
    versioned = Versioned(config.retention_ms)
    customers = Topic("customers", inputs.number_of("customers"), versioned)
    subscriptions = Topic("subscriptions", inputs.number_of("subscriptions"), versioned)
    joined = JoinStep(
        "customers-subscriptions", customers, subscriptions, joiner=_join, join=config.join
    )
    spread = Spread(tasks=config.tasks)
    return operate_for_sinks(joined, inputs.arriving, spread, updates=config.updates)


def _join(customer: bytes | None, subscription: bytes | None) -> bytes:
    quick = write_alike(_row(fields_of(customer), fields_of(subscription)))
    return quick or write_json(_row(read_json(customer) or {}, read_json(subscription) or {}))


def _row(customer: dict[str, Any], subscription: dict[str, Any]) -> dict[str, Any]:
    return {"name": customer.get("name"), "plan": subscription.get("plan")}
