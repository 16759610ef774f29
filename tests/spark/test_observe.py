"""What a query shows to Prometheus."""

from __future__ import annotations

import logging
import urllib.request

import pytest

from services.broker.ports import free_ports
from spark_jobs.observe.listener import Listener
from spark_jobs.observe.metrics import LOOPBACK, Metrics
from spark_jobs.write.kafka import Written
from spark_jobs.write.transaction import Note

PROGRESS = {
    "inputRowsPerSecond": 120.0,
    "processedRowsPerSecond": 240.0,
    "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
    "sources": [
        {"endOffset": {"orders": {"0": 7, "1": 9}}, "latestOffset": {"orders": {"0": 10, "1": 9}}},
        {"endOffset": {"prices": {"0": 3}}, "latestOffset": None},
        {"endOffset": "LogOffset 3"},
        {"endOffset": 4},
    ],
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 6, "commitTimeMs": 7}],
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("priced")


def count(task: int, name: str, number: int) -> Note:
    return Note("count", name, task, number, 1)


def test_a_micro_batch_shows_rates_lag_and_state(metrics: Metrics) -> None:
    Listener(metrics).take(PROGRESS)
    page = metrics.page()
    for line in (
        'headrace_spark_rows_per_second{query="priced",rate="input"} 120.0',
        'headrace_spark_batch_seconds{part="triggerExecution",query="priced"} 2.0',
        'headrace_spark_offset{partition="1",query="priced",topic="orders"} 9.0',
        'headrace_spark_lag{partition="0",query="priced",topic="orders"} 3.0',
        'headrace_spark_lag{partition="0",query="priced",topic="prices"} 0.0',
        'headrace_spark_state_rows{operator="0",query="priced"} 5.0',
    ):
        assert line in page.splitlines()


def test_steps_show_what_became_of_records_and_what_waits(metrics: Metrics) -> None:
    first = [count(0, "join:taken", 10), count(0, "join:joined", 6), count(0, "join:late", 2)]
    metrics.tell(1, Written(6, 0, [*first, count(1, "join:taken", 4)]))
    dropped = count(0, "join:dropped:null-value", 1)
    metrics.tell(
        2, Written(3, 1, [count(0, "join:joined", 7), dropped, Note("late", None, 0, None, 2)])
    )
    page = metrics.page().splitlines()
    assert 'headrace_spark_step_records{query="priced",step="join",verdict="taken"} 14.0' in page
    assert 'headrace_spark_step_records{query="priced",step="join",verdict="late"} 2.0' in page
    assert 'headrace_spark_step_held{query="priced",step="join"} 6.0' in page
    assert 'headrace_spark_records{outcome="written",query="priced"} 9.0' in page
    assert 'headrace_spark_records{outcome="late",query="priced"} 2.0' in page
    assert 'headrace_spark_batch{query="priced"} 2.0' in page


def test_a_changed_option_is_said(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        metrics.tell(1, Written(0, 0, [Note("said", "`join`: `grace_ms` was 1 and is 2", 0, 0, 0)]))
    assert "priced: `join`: `grace_ms` was 1 and is 2" in caplog.text


def test_the_page_is_served_on_this_machine(metrics: Metrics) -> None:
    (port,) = free_ports(1)
    metrics.serve(port)
    metrics.set("up", "Whether the query runs.", 1)
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics") as answer:
        assert 'headrace_spark_up{query="priced"} 1.0' in answer.read().decode().splitlines()
