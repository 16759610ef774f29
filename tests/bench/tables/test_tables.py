"""The table has each product once, files count that have gone, and the page tells the bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.spark.jobs.orders_prices import joined, price, product
from tests.bench.spark.shipped import Moment
from tests.bench.spark.topics import PARTITIONS, SPAN_MS, START_MS
from tests.bench.tables.inputs import table_of
from tests.bench.tables.measured import BATCHES, WARMING_BATCHES, Figures, Written, between
from tests.bench.tables.report import ratios, report


def test_a_table_has_each_product_once_in_the_order_of_times() -> None:
    pieces = [*table_of(250_000)]
    times_ms = [time_ms for piece in pieces for time_ms in piece.times_ms]
    assert [len(piece.keys) for piece in pieces] == [100_000, 100_000, 50_000]
    assert len({key for piece in pieces for key in piece.keys}) == 250_000
    assert times_ms == sorted(times_ms)
    assert times_ms[0] == START_MS
    assert times_ms[-1] < START_MS + SPAN_MS
    assert {partition for piece in pieces for partition in piece.partitions} == {*range(PARTITIONS)}


def test_an_order_meets_the_table_until_its_price_changes() -> None:
    (table,) = table_of(2)
    orders = table._replace(
        keys=[product(0), product(1), product(0), product(5)],
        values=[b'{"order_id":"o","quantity":1}'] * 4,
        times_ms=[1, 3, 5, 7],
    )
    prices = table._replace(keys=[product(0)], values=[price(77)], times_ms=[4])
    before = dict(zip(table.keys, table.values, strict=True))
    rows = [(key, cents) for key, _, _, cents in joined(prices, orders, before.get)]
    assert rows == [(product(0), 100), (product(1), 101), (product(0), 177)]


def test_a_file_counts_after_it_has_gone(tmp_path: Path) -> None:
    written = Written(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "1.delta").write_bytes(bytes(10))
    (tmp_path / "state" / ".2.tmp").write_bytes(bytes(1_000))
    assert written.look() == 10
    (tmp_path / "state" / "1.delta").unlink()
    (tmp_path / "state" / "2.delta").write_bytes(bytes(5))
    assert written.look() == 15


def test_the_measured_part_begins_behind_the_warming() -> None:
    moments = [Moment(batch, float(batch), {"java": float(batch)}) for batch in range(50)]
    start, end = between(moments, begin=5)
    assert (start.batch, end.batch) == (5 + WARMING_BATCHES - 1, 5 + WARMING_BATCHES - 1 + BATCHES)


def _figures(keys: int, cpu_s: float) -> Figures:
    used = {"java": cpu_s, "workers": cpu_s, "python": 0.0}
    return Figures(keys, 4_000, 9.0, 20, 10.0, used, 20 << 20, 30 << 20, {"java": 1 << 30}, 1)


def test_the_page_has_a_row_a_table_and_says_the_ratio() -> None:
    few, many = _figures(100_000, 10.0), _figures(10_000_000, 11.0)
    assert ratios(few, many)["CPU time"] == pytest.approx(1.1)
    page = report([few, many], ["1", "2"])
    assert (
        "| 4,000 | 10,000,000 | 1.10 | 0.55 | 0.55 | 0.00 | 500 | 1.00 | 30 | 0 | 1,024 | 0 |"
        in page
    )
    assert "of 4,000 orders over 10,000,000 keys against one over 100,000: CPU time 1.10" in page
    assert page.count("against") == 1
    more = [each._replace(orders=40_000) for each in (few, many)]
    assert report([few, many, *more], ["1", "2"]).count("against") == 2
    assert "against" not in report([few], ["1", "2"])
