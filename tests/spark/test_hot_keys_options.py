"""Hot keys as an option of jobs and queries: which refuse it, and what a checkpoint notes."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.hot_keys import spread_of
from headrace.spark_jobs.jobs.stamp import options_of
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.windows import GroupableStream

ORDERS_PRICES = """\
job: orders-prices
name: priced
servers: localhost:9092
checkpoint: state/priced
inputs: {orders: {topic: orders.cleaned}, prices: {topic: prices.cleaned}}
retention: 1h
sink: {kafka: {topic: orders.priced}}
"""
ORDERS_CUSTOMERS = (
    ORDERS_PRICES.replace("orders-prices", "orders-customers")
    .replace("prices.cleaned", "customers.cleaned")
    .replace("prices:", "customers:")
)
HOT_KEYS = "hot-keys: [p1]\n"


def loaded(folder: Path, text: str) -> str:
    """Return the sentence about a job's file, nothing for one that is right."""
    file = folder / "job.yaml"
    file.write_text(text)
    try:
        load_job(file)
    except JobInvalid as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("release: stream-time\n", "each task has a stream time of its own"),
        ("corrections: true\n", "`corrections` needs all rows of a key in one task, in order"),
        ("cold-history: {folder: cold}\n", "`cold-history` needs all rows of a key in one task"),
    ],
)
def test_an_option_that_needs_one_task_a_key_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    assert not loaded(tmp_path, ORDERS_PRICES + text)
    assert not loaded(tmp_path, ORDERS_PRICES + HOT_KEYS)
    sentence = loaded(tmp_path, ORDERS_PRICES + HOT_KEYS + text)
    assert "job.yaml:8:1: hot-keys: " in sentence
    assert said in sentence


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_the_last_rows_is_refused(tmp_path: Path, kind: str) -> None:
    to_kafka = "{kafka: {topic: orders.priced}}"
    appends = ORDERS_PRICES.replace(to_kafka, f"{{{kind}: {{folder: t}}}}") + HOT_KEYS
    assert not loaded(tmp_path, appends)
    sentence = loaded(tmp_path, appends.replace("folder: t", "folder: t, mode: upsert"))
    assert "hot-keys: `mode: upsert` needs all rows of a key in one task, in order;" in sentence


def test_a_job_that_joins_tables_has_no_hot_keys(tmp_path: Path) -> None:
    assert not loaded(tmp_path, ORDERS_CUSTOMERS)
    sentence = loaded(tmp_path, ORDERS_CUSTOMERS + HOT_KEYS)
    assert "hot-keys: `orders-customers` cannot spread the records of a key: only" in sentence


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("hot-keys: p1", "hot-keys: `p1` is not a list; write `hot-keys: [product-1]`"),
        ("hot-keys: [1]", "hot-keys[0]: `1` is not text; if it is meant as text, write it in quo"),
    ],
)
def test_keys_are_texts(tmp_path: Path, written: str, said: str) -> None:
    assert said in loaded(tmp_path, ORDERS_PRICES + written)


PRODUCTS = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
SHOPS = hr.table("shops.cleaned", "name STRING", retention="30d")
SALES = hr.stream("orders.cleaned", "order_id STRING, shop STRING, quantity BIGINT")
ASKED = {"name": "x", "servers": "here:1", "checkpoint": "c"}


def sums(stream: GroupableStream) -> Query:
    """Sums by window of a stream."""
    return stream.group_by("shop", hr.window("1h")).agg(hr.sum("quantity"))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_are_folded_by_window_leave_in_the_tasks_of_their_groups(mode: str) -> None:
    query = sums(SALES.join_as_of(PRODUCTS))
    to = hr.delta("t", mode=mode)  # type: ignore[arg-type]
    _, config = described(query, to=to, **ASKED, hot_keys=["p1", "ü"])
    assert spread_of(config).hot_keys == {b"p1", b"\xc3\xbc"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (SALES.join_as_of(PRODUCTS, on="order_id"), "looks up by its column `order_id`"),
        (SALES.join_as_of(PRODUCTS, grace="5s"), "each task has a stream time of its own"),
        (SALES.join_as_of(PRODUCTS, corrections=True), "`corrections` needs all rows of a key"),
        (SALES.join_as_of(PRODUCTS, history="cold"), "`cold-history` needs all rows of a key"),
        (sums(SALES), "only a stream that looks up in a table by its key can"),
        (PRODUCTS, "only a stream that looks up in a table by its key can"),
        (PRODUCTS.join(SHOPS), "only a stream that looks up in a table by its key can"),
        (SHOPS.group_by("name").agg(hr.count()), "only a stream that looks up in a table by its"),
    ],
)
def test_a_query_whose_keys_need_one_task_is_refused(query: Query, said: str) -> None:
    described(query, to=hr.console(), **ASKED)
    with pytest.raises(JobInvalid, match=f"`hot-keys`: .*{said}"):
        described(query, to=hr.console(), **ASKED, hot_keys=["p1"])


def test_the_options_of_an_earlier_checkpoint_are_those_without_hot_keys(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(ORDERS_PRICES)
    assert "hot-keys" not in options_of(load_job(file)[1])
    file.write_text(ORDERS_PRICES + HOT_KEYS)
    assert options_of(load_job(file)[1])["hot-keys"] == ["p1"]
