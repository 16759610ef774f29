"""The shipped jobs through real queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.run import find_job, format_of
from headrace.spark_jobs.operators.frames import InputProgress
from tests.spark.frames import (
    Row,
    apart,
    collect_stream,
    stream_rows,
    write_rows,
)

FAR_MS = 1_000_000


@pytest.fixture
def results_of(spark: SparkSession, tmp_path: Path) -> Callable[..., list[tuple[str, Any]]]:
    """Run a job over rows, and return what leaves."""

    def run(name: str, rows: list[Row], **options: Any) -> list[tuple[str, Any]]:
        job = find_job(name)
        names = list(job.Config.model_fields["inputs"].annotation.model_fields)  # type: ignore[union-attr]
        config = job.Config.model_validate(
            {
                "job": name,
                "name": name,
                "servers": "localhost:9092",
                "checkpoint": "unused",
                "inputs": {one: {"topic": one} for one in names},
                "sink": {"console": {}},
                "retention": "1h",
                "tasks": 2,
                **options,
            }
        )
        formats = {names.index(value): format_of(job, value) for value in job.VALUES}
        read = stream_rows(spark, write_rows(tmp_path / "in", rows))
        frames = apart(read, len(names))
        progress = InputProgress(None, dict.fromkeys(range(len(names)), 0))
        results = job.transform(Inputs(names, frames, formats, progress, {}), config)
        found = collect_stream(results, tmp_path / "checkpoint", "key", "value")
        return [
            (key.decode(), None if value is None else json.loads(value))  # type: ignore[attr-defined, arg-type]
            for key, value in found
        ]

    return run


@pytest.fixture
def run_job(results_of: Callable[..., list[tuple[str, Any]]]) -> Callable[..., dict[str, Any]]:
    """Run a job over rows, and return the last value of each key."""
    return lambda *given, **options: dict(results_of(*given, **options))


def rows_of(side: int, *said: tuple[bytes, int, object], headers: Headers = ()) -> list[Row]:
    """Records of an input in the order of their offsets; None is a tombstone."""
    return [
        (side, Record(key, _value(value), at_ms, headers, str(side), 0, offset))
        for offset, (key, at_ms, value) in enumerate(said)
    ]


def _value(value: object) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def test_customers_meet_their_subscription(run_job: Callable[..., dict[str, Any]]) -> None:
    customers = rows_of(0, (b"c1", 1, {"name": "Ann"}), (b"c2", 2, {"name": "Bob"}))
    plans = rows_of(1, (b"c1", 5, {"plan": "new"}), (b"c1", 3, {"plan": "old"}))
    assert run_job("customers-subscriptions", [*customers, *plans]) == {
        "c1": {"name": "Ann", "plan": "new"},
        "c2": {"name": "Bob", "plan": None},
    }


def test_orders_meet_the_customer_they_point_at(run_job: Callable[..., dict[str, Any]]) -> None:
    customers = rows_of(
        0,
        (b"c1", 1, {"name": "Ann", "segment": "x"}),
        (b"c2", 2, {"name": "Bob", "segment": "y"}),
        (b"c2", 9, {"name": "Bob", "segment": "z"}),
        (b"17", 9, {"name": "Cy", "segment": "z"}),
    )
    orders = rows_of(
        1,
        (b"o1", 3, {"customer": "c1", "amount_cents": 5}),
        (b"o2", 4, {"customer": "c1", "amount_cents": 7}),
        (b"o2", 6, {"customer": "c2", "amount_cents": 7}),
        (b"o3", 7, {"customer": "nobody", "amount_cents": 1}),
        (b"o4", 8, {"customer": 17, "amount_cents": 2}),
    )
    assert run_job("orders-customers", [*customers, *orders]) == {
        "o1": {"customer": "c1", "amount_cents": 5, "name": "Ann", "segment": "x"},
        "o2": {"customer": "c2", "amount_cents": 7, "name": "Bob", "segment": "z"},
        "o4": {"customer": 17, "amount_cents": 2, "name": "Cy", "segment": "z"},
    }


def test_revenue_leaves_the_segment_that_an_order_leaves(
    run_job: Callable[..., dict[str, Any]],
) -> None:
    orders = rows_of(
        0,
        (b"o1", 1, {"segment": "x", "amount_cents": 5}),
        (b"o2", 2, {"segment": "x", "amount_cents": 7}),
        (b"o3", 3, {"segment": "x", "amount_cents": 11}),
        (b"o1", 4, {"segment": "y", "amount_cents": 6}),
        (b"o2", 5, None),
        (b"o3", 1, {"segment": "y", "amount_cents": 1_000}),
    )
    assert run_job("revenue-by-segment", orders) == {
        "x": {"orders": 1, "revenue_cents": 11},
        "y": {"orders": 1, "revenue_cents": 6},
    }


@pytest.mark.parametrize("updates", ["each", "last"])
def test_revenue_beyond_64_bits_is_exact_when_it_is_less_again(
    results_of: Callable[..., list[tuple[str, Any]]], updates: str
) -> None:
    most = (1 << 63) - 1
    orders = rows_of(
        0,
        (b"o1", 1, {"segment": "x", "amount_cents": most}),
        (b"o2", 2, {"segment": "x", "amount_cents": most}),
        (b"o3", 3, {"segment": "y", "amount_cents": most}),
        (b"o4", 4, {"segment": "y", "amount_cents": 7}),
        (b"o3", 5, {"segment": "y", "amount_cents": 5}),
    )
    assert dict(results_of("revenue-by-segment", orders, updates=updates)) == {
        "x": {"orders": 2, "revenue_cents": 2 * most},
        "y": {"orders": 2, "revenue_cents": 12},
    }


@pytest.mark.parametrize(("updates", "left"), [("each", 5), ("last", 2)])
def test_the_last_update_of_a_segment_leaves_alone_unless_each_is_wanted(
    results_of: Callable[..., list[tuple[str, Any]]], updates: str, left: int
) -> None:
    orders = rows_of(
        0,
        *((b"o%d" % at, at, {"segment": "x", "amount_cents": at}) for at in range(4)),
        (b"o4", 9, {"segment": "y", "amount_cents": 9}),
    )
    found = results_of("revenue-by-segment", orders, updates=updates)
    assert dict(found) == {
        "x": {"orders": 4, "revenue_cents": 6},
        "y": {"orders": 1, "revenue_cents": 9},
    }
    assert len(found) == left


def test_a_count_outside_of_its_limits_is_an_alert(run_job: Callable[..., dict[str, Any]]) -> None:
    limits = rows_of(
        0,
        (b"k", 1, {"least": 3, "most": None}),
        (b"k", 500, {"least": 1, "most": 4}),
        (b"quiet", 1, {"least": None, "most": None}),
        (b"k", 501, {"least": "few, which is no number", "most": 4}),
        (b"end", FAR_MS, {"least": 0, "most": 0}),
    )
    counts = rows_of(1, (b"k" + bytes(8), 600, {"count": "not eight bytes"}))
    counted = ((b"k", 100, 2), (b"k", 200, 3), (b"k", 600, 2), (b"quiet", 100, 0))
    for offset, (key, end_ms, count) in enumerate((*counted, (b"end", FAR_MS, 0)), 1):
        window = WindowBounds("tumbling", end_ms - 100, end_ms)
        ((_, one),) = rows_of(1, (windowed_key(key, window), end_ms, count))
        headers = (window_header(window),)
        value = count.to_bytes(8, "big")
        counts.append((1, one._replace(offset=offset, headers=headers, value=value)))
    assert run_job("count-alerts", [*limits, *counts]) == {
        "k": {
            "key": "k",
            "window_start_ms": 0,
            "window_end_ms": 100,
            "count": 2,
            "least": 3,
            "most": None,
        }
    }
