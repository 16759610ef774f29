"""Each job's input has one right answer, which is what is compared, and the page tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.contracts.window import WindowBounds, windowed_key
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.jobs.config import updates_of
from tests.bench.spark import queries, streams
from tests.bench.spark.cleaned import LAST_MS, Cleaned, Filled, Records, last_keys, records_of
from tests.bench.spark.jobs import (
    count_alerts,
    customers_subscriptions,
    orders_customers,
    orders_prices,
    revenue_by_segment,
)
from tests.bench.spark.jobs.rows import digest_of, judge_each, judge_last, latest_of
from tests.bench.spark.report import report, spark_chart
from tests.bench.spark.shipped import EACH, Cut, Shipped, batches_of, described
from tests.bench.spark.topics import PARTITIONS, START_MS, Digest, Size
from tests.runtime.registry_server import registry_server

Value = Mapping[str, Any] | None


def _table(*changes: tuple[bytes, Value]) -> Records:
    values = [None if value is None else json.dumps(value).encode() for _, value in changes]
    return records_of([key for key, _ in changes], values, [*range(len(changes))])


def test_the_last_row_of_a_key_counts_and_a_tombstone_is_none() -> None:
    read = [(b"a", b'{"n":1}', 0), (b"b", b'{"n":2}', 0), (b"a", b'{"n": 3}', 0), (b"b", b"", 0)]
    made = judge_last(read)
    assert made.digest == digest_of([(b"a", {"n": 3})])
    assert made.rows == 4
    assert judge_each(read[:3]).digest != judge_each(read[:2]).digest


def test_a_row_that_may_stay_is_counted_and_not_compared() -> None:
    read = [(b"a", b'{"n":1}', 0), (b"b", b'{"n":2}', 0), (b"c", b'{"n":3}', 0), (b"c", b"", 0)]
    made = judge_last(read, may_stay=frozenset({b"b", b"c"}))
    assert made.digest == digest_of([(b"a", {"n": 1})])
    assert (made.rows, made.stayed) == (4, 1)


def test_an_offset_behind_a_marker_makes_up_for_no_other() -> None:
    ends = {("t", 0): 10, ("t", 1): 10}
    assert streams.read_of(ends, {("t", 0): 11, ("t", 1): 9, ("own", 0): 7}) == 19
    assert streams.read_of(ends, {("t", 0): 11, ("t", 1): 11}) == 20
    assert streams.read_of(ends, {}) == 0


def test_rows_in_any_order_and_with_fields_in_any_order_are_the_same() -> None:
    rows: list[tuple[bytes, Mapping[str, Any]]] = [(b"a", {"n": 1, "m": 2}), (b"b", {"n": 3})]
    assert digest_of(rows) == digest_of([(b"b", {"n": 3}), (b"a", {"m": 2, "n": 1})])
    assert digest_of(rows) != digest_of([(b"b", {"n": 1, "m": 2}), (b"a", {"n": 3})])


def test_an_order_stands_with_its_last_customer() -> None:
    ann, bob = {"name": "Ann", "segment": "s"}, {"name": "Bob", "segment": "s"}
    orders = _table(
        (b"moves", {"customer": "a", "amount_cents": 1}),
        (b"moves", {"customer": "b", "amount_cents": 1}),
        (b"goes", {"customer": "b", "amount_cents": 2}),
        (b"goes", None),
        (b"alone", {"customer": "gone", "amount_cents": 3}),
    )
    customers = _table((b"a", ann), (b"b", ann), (b"b", bob), (b"gone", ann), (b"gone", None))
    assert orders_customers.alone(orders, customers) == {b"alone"}
    assert dict(orders_customers.joined(orders, customers)) == {
        b"moves": {"customer": "b", "amount_cents": 1, **bob}
    }


def test_a_segment_without_orders_stays_with_nothing_if_it_ever_had_any() -> None:
    orders = _table(
        (b"moves", {"segment": "x", "amount_cents": 5}),
        (b"moves", {"segment": "y", "amount_cents": 7}),
        (b"bare", {"segment": None, "amount_cents": 9}),
    )
    assert dict(revenue_by_segment.folded(orders)) == {
        b"x": {"orders": 0, "revenue_cents": 0},
        b"y": {"orders": 1, "revenue_cents": 7},
    }


def test_a_customer_without_a_subscription_stands_alone() -> None:
    customers = _table((b"a", {"name": "Ann"}), (b"b", {"name": "Bob"}), (b"c", None))
    subscriptions = _table((b"a", {"plan": "p"}), (b"b", {"plan": "p"}), (b"b", None))
    assert dict(customers_subscriptions.joined(customers, subscriptions)) == {
        b"a": {"name": "Ann", "plan": "p"},
        b"b": {"name": "Bob", "plan": None},
    }


def test_a_count_outside_of_the_limits_of_its_time_is_an_alert() -> None:
    start_ms = START_MS
    window = WindowBounds("tumbling", start_ms, start_ms + count_alerts.WINDOW_MS)
    limits = _table((b"k", {"least": 2, "most": None}), (b"k", {"least": None, "most": 4}))
    limits = limits._replace(times_ms=[start_ms, start_ms + 10])
    said = ((1, 1), (2, 3), (5, 5), (5, 11), (4, 13), (1, 15))
    counts = records_of(
        [windowed_key(b"k", window) for _ in said],
        [count.to_bytes(8, "big") for count, _ in said],
        [start_ms + after_ms for _, after_ms in said],
    )
    rows = [row for _, row in count_alerts.alerts(limits, counts)]
    assert [(row["count"], row["least"], row["most"]) for row in rows] == [
        (1, 2, None),
        (5, None, 4),
    ]


def test_each_input_has_changes_tombstones_and_strangers() -> None:
    random = np.random.default_rng(1)
    customers = orders_customers.customers_of(random, 400, 200)
    orders = orders_customers.orders_of(random, 4_000, 200)
    segmented = revenue_by_segment.orders_of(random, 4_000)
    limits, counts = (
        count_alerts.limits_of(random, 200, 40),
        count_alerts.counts_of(random, 4_000, 40),
    )
    for records in (customers, orders, segmented, limits, counts):
        assert records.times_ms == sorted(records.times_ms)
        assert len({*records.partitions}) == PARTITIONS
    for table in (customers, orders, segmented, limits):
        assert None in table.values
        assert len({*table.keys}) < len(table.keys)
    joined = dict(orders_customers.joined(orders, customers))
    assert 0 < len(joined) < len(latest_of(orders))
    assert any(row["segment"] is None for row in latest_of(segmented).values())
    alerts = [*count_alerts.alerts(limits, counts)]
    assert 0 < len(alerts) < 4_000


def test_a_last_record_comes_to_each_partition() -> None:
    counts = count_alerts.counts_of(np.random.default_rng(1), 100, 10)
    last = [at for at, time_ms in enumerate(counts.times_ms) if time_ms == LAST_MS]
    assert {counts.partitions[at] for at in last} == {*range(PARTITIONS)}
    assert len({*last_keys()}) == PARTITIONS


def test_a_topic_is_left_behind_its_micro_batches() -> None:
    assert Cut(1_000, 101).share_behind(4) == 1 - 404 / 1_000
    assert Cut(1_000, 101).share_behind(10) == 0


def test_the_second_half_of_the_micro_batches_is_steady() -> None:
    assert [batches_of(facts) for facts in (1_000, 300_000, 2_000_000)] == [2, 2, 20]


def test_a_row_in_avro_is_judged_as_the_same_row_in_json() -> None:
    orders = [b'{"order_id":"a","quantity":2,"customer":"c"}', b'{"order_id":"last","quantity":1}']
    with registry_server() as registry:
        encode, decode = queries.encoder("orders", registry), queries.decoder(registry)
        first, last = (encode(json.loads(order)) for order in orders)
        assert first == b"\0\0\0\0\1" + b"\2a" + b"\4" + b"\2\2c"
        assert decode(first) == json.loads(orders[0])
        assert decode(last) == {**json.loads(orders[1]), "customer": None}
        # The schemas of both topics differ, and so do their numbers.
        price = queries.encoder("prices", registry)({"price_cents": 7})
        assert price[:5] == b"\0\0\0\0\2"
        assert decode(price) == {"price_cents": 7}


def test_a_query_file_is_one_that_users_may_write(tmp_path: Path) -> None:
    inputs = {name: Cleaned(name, f"{name}-1.cleaned") for name in ("prices", "orders")}
    filled = Filled(orders_prices.JOB, Size(10, 5), inputs, {}, Digest(0, 0), judge_each)
    for who, registry in zip(queries.QUERIES, (None, "http://127.0.0.1:8081"), strict=True):
        said = queries.described(who, filled._replace(registry=registry), "here:9092", tmp_path)
        file = tmp_path / f"{who}.yaml"
        file.write_text(json.dumps(said), "utf-8")
        _, config = load_job(file)
        assert config.name == f"orders-prices-{who}-10-0"
        assert config.sink.kafka is not None
        assert config.sink.kafka.value == ("json" if registry is None else "avro")


def test_each_update_is_an_option_of_the_job(tmp_path: Path) -> None:
    inputs = {"orders": Cleaned("orders", "orders")}
    filled = Filled(revenue_by_segment.JOB, Size(10, 0), inputs, {}, Digest(0, 0), judge_each)
    for who, updates in (("kafka", "last"), (EACH, "each")):
        file = tmp_path / f"{who}.yaml"
        file.write_text(json.dumps(described(who, filled, "here:9092", tmp_path)), "utf-8")
        _, config = load_job(file)
        assert config.name == f"revenue-by-segment-{who}-10-0"
        assert updates_of(config) == updates
        assert config.sink.kafka is not None


def test_the_page_has_a_row_a_run_and_the_chart_is_of_one_job() -> None:
    ours, other = orders_prices.JOB, revenue_by_segment.JOB
    runs = [_run(ours, who) for who in ("kafka", *queries.QUERIES, "json")] + [_run(other, "kafka")]
    runs += [_run(other, streams.PEER)._replace(stayed=1_234), _run(other, streams.EACH_UPDATE)]
    page = report(runs, None, [], ["1", "2"])
    assert page.count("| 7,777 |") == 7
    assert "| headrace, a query from Avro to Avro | 8,000 + 800 | 2,000 | 1,000 |  |" in page
    assert f"| {other} | Kafka Streams, without its cache | 8,000 + 800 | 2,000 | 1,000 |" in page
    assert "Kafka Streams left 1,234 rows" in page
    assert "One round." in page
    assert spark_chart(runs).count("<rect") == 8


def test_a_figure_is_the_median_of_its_rounds_beside_its_own_neighbours() -> None:
    ours = [
        _run(orders_prices.JOB, "kafka", number, cpu_s) for number, cpu_s in enumerate((1, 2, 5))
    ]
    peers = [
        _run(orders_prices.JOB, "json", number, cpu_s) for number, cpu_s in enumerate((2, 2, 4))
    ]
    more = [run._replace(facts=80_000) for run in ours]
    page = report([*ours, *peers, *more], None, [], ["1", "2"])
    assert "3 rounds" in page
    assert (
        "to Kafka in transactions | 8,000 + 800 | 4,000 | 2,000 | 1.00x | 0.80x, round 3 |" in page
    )
    assert "Kafka Streams, JSON, exactly once | 8,000 + 800 | 4,000 | 2,000 |  |  |" in page
    assert "to Kafka in transactions | 80,000 + 800 | 40,000 | 2,000 |  |  |" in page
    assert spark_chart([*ours, *peers, *more]).count("<rect") == 4


def _run(job: str, who: str, number: int = 0, cpu_s: float = 4.0) -> Shipped:
    used = {"java": cpu_s / 2, "workers": cpu_s / 4, "python": cpu_s / 4}
    memory = {"java": 1 << 20}
    run = Shipped(job, who, 8_000, 800, 7_777, 9.0, used, 4_000, 3.0, used, memory)
    return run._replace(round=number)
