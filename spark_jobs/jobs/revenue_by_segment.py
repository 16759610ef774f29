"""Revenue and orders of each segment; an order that changes is taken out of where it was.

orders    key order, value {"segment", "amount_cents"}, versioned: what orders-customers writes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field
from pyspark.sql import DataFrame

from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.config import Input, InputTopics, TablesConfig
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import write_json
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate_for_sinks
from headrace.spark_jobs.operators.topology import AggregateStep, Topic
from headrace.spark_jobs.read.json_text import ALIKE, fields_of, read_json, text_of
from headrace.spark_jobs.versioned.tables import Versioned
from headrace.spark_jobs.versioned.totals import Aggregation, Form


class Topics(InputTopics):
    """A table."""

    orders: Input


class Config(TablesConfig):
    """The topic, and how far back an update still counts."""

    inputs: Topics
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record an update is still taken."""


class Order(BaseModel):
    """The value of an order; without a segment it is in none."""

    segment: str | None
    amount_cents: int


class Row(BaseModel):
    """A segment as it stands; revenue that 64 bits cannot hold is whole in JSON, elsewhere null."""

    orders: int
    revenue_cents: int | None


VALUES: Mapping[str, type[BaseModel]] = {"orders": Order}


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Add orders to segments, and subtract them again."""
    orders = Topic("orders", inputs.number_of("orders"), Versioned(config.retention_ms))
    total = Aggregation(_nothing, _add, _subtract, Form(_read, _write), _net)
    folded = AggregateStep("revenue", orders, _segment_of, total)
    spread = Spread(tasks=config.tasks)
    return operate_for_sinks(folded, inputs.arriving, spread, updates=config.updates)


def _segment_of(_order: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Return the segment, and the cents there; the whole value, if they are no whole number."""
    order = fields_of(value)
    segment, cents = order.get("segment"), order.get("amount_cents")
    if type(segment) is not str or type(cents) not in ALIKE:
        order = read_json(value) or {}
        segment, cents = text_of(order.get("segment")), order.get("amount_cents")
    if segment is None:
        return None
    return segment.encode(), b"%d" % cents if type(cents) is int else value


class _Total(NamedTuple):
    """A segment as it stands, while orders are added and subtracted."""

    orders: int
    revenue_cents: int


_NET = b"net "
"""It begins the value that stands for many orders; no JSON begins so."""


def _nothing() -> _Total:
    return _Total(0, 0)


def _add(_segment: bytes, value: bytes, total: _Total) -> _Total:
    if value.startswith(_NET):
        orders, cents = map(int, value.removeprefix(_NET).split(b","))
    else:
        orders, cents = 1, _cents_of(value)
    return _Total(total.orders + orders, total.revenue_cents + cents)


def _subtract(_segment: bytes, order: bytes, total: _Total) -> _Total:
    return _Total(total.orders - 1, total.revenue_cents - _cents_of(order))


def _net(olds: Sequence[bytes], news: Sequence[bytes]) -> bytes:
    """Count and sum orders that come, less those that leave."""
    cents = sum(map(_cents_of, news)) - sum(map(_cents_of, olds))
    return b"%s%d,%d" % (_NET, len(news) - len(olds), cents)


def _read(row: bytes) -> _Total:
    return _Total(**(read_json(row) or {}))


def _write(total: _Total) -> bytes:
    return write_json(total._asdict())


def _cents_of(order: bytes) -> int:
    """Return the cents of an order as it is in its segment."""
    if order.removeprefix(b"-").isdigit():
        return int(order)
    return int((read_json(order) or {}).get("amount_cents") or 0)
