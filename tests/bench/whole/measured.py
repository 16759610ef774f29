"""The time and memory that a contestant took for the whole way, by part, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.bench.spark.topics import read_rows
from tests.bench.whole.agreement import Agreement, Priced
from tests.bench.whole.raw import Topics

WARMING_SHARE = 0.4
"""So much of the input at the beginning is not steady: Java compiles."""


class Track(NamedTuple):
    """Where a contestant runs, and the name that all of its own begins with."""

    topics: Topics
    grace_ms: int
    servers: str
    name: str
    folder: Path

    @property
    def sink(self) -> str:
        """The topic of its priced orders."""
        return f"priced-{self.name}"


class Used(NamedTuple):
    """Time and memory of all processes of a contestant, by part."""

    seconds: float
    cpu_seconds: dict[str, float]
    steady_orders: int
    steady_cpu_seconds: dict[str, float]
    memory_bytes_max: dict[str, int]


class Whole(NamedTuple):
    """One contestant over one size, once."""

    who: str
    orders: int
    prices: int
    round: int
    used: Used
    agreement: Agreement

    @property
    def orders_per_cpu_second(self) -> float:
        """Orders of the whole run; the prices come on top."""
        return self.orders / sum(self.used.cpu_seconds.values())

    @property
    def steady_orders_per_cpu_second(self) -> float:
        """Orders of the steady part."""
        return self.used.steady_orders / sum(self.used.steady_cpu_seconds.values())


def dumped(run: Whole) -> dict[str, Any]:
    """Return a run as a file keeps it."""
    return {
        **run._asdict(),
        "used": run.used._asdict(),
        "agreement": run.agreement._asdict(),
    }


def loaded(said: Mapping[str, Any]) -> Whole:
    """Return a run that a file kept."""
    parts = {"used": Used(**said["used"]), "agreement": Agreement(**said["agreement"])}
    return Whole(**{**said, **parts})


def priced(servers: str, topic: str) -> Iterator[Priced]:
    """Read everything committed in a topic of priced orders."""
    for key, value, time_ms in read_rows(servers, topic):
        row = orjson.loads(value)
        yield Priced(
            key.decode(),
            row["product"],
            row["order_id"],
            row["quantity"],
            row["price_cents"],
            row["total_cents"],
            time_ms,
        )
