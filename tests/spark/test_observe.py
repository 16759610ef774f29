"""A query's metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import socket
import urllib.request
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent

from headrace.contracts.errors import PortTaken, SettingsInvalid
from headrace.services.broker.ports import free_ports
from headrace.spark_jobs.observe.listener import FromJava, Listener
from headrace.spark_jobs.observe.metrics import LOOPBACK, Address, Metrics
from headrace.spark_jobs.observe.state import StateRow, waits_of
from headrace.spark_jobs.observe.waits import lowest_of
from headrace.spark_jobs.versioned.progress import ProgressRow, TaskProgress
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.write.kafka import Written
from headrace.spark_jobs.write.transaction import Note

QUERY = UUID(int=7)
PLACES = ("prices.cleaned:3", "orders.cleaned:0", "input 1")
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


class Clock:
    """Seconds that a test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        """Return its metrics."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics("priced", clock)


def count(task: int, name: str, number: int) -> Note:
    return Note("count", name, task, number, 1)


class _Event:
    """An event that knows nothing but its JSON: each further field would cost a look-up."""

    def progress(self) -> _Event:
        return self

    def json(self) -> str:
        return json.dumps(PROGRESS)


def test_progress_comes_as_json_alone(metrics: Metrics) -> None:
    FromJava(Listener(metrics)).onQueryProgress(_Event())
    assert "headrace_spark_rows_per_second" in metrics.page()


def test_a_query_that_was_started_again_runs_though_its_first_end_is_told_later(
    metrics: Metrics,
) -> None:
    listener = Listener(metrics)
    first, second = UUID(int=1), UUID(int=2)
    for run_id in (first, second):
        told = {"id": str(QUERY), "runId": str(run_id), "name": "priced", "timestamp": "now"}
        listener.onQueryStarted(QueryStartedEvent.fromJson(told))
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, first, "not started", None))
    assert 'headrace_spark_up{query="priced"} 1.0' in metrics.page()
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, second, None, None))
    assert 'headrace_spark_up{query="priced"} 0.0' in metrics.page()


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
    metrics.note(1, Written(6, 0, [*first, count(1, "join:taken", 4)]))
    dropped = count(0, "join:dropped:null-value", 1)
    metrics.note(
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
        metrics.note(1, Written(0, 0, [Note("said", "`join`: `grace_ms` was 1 and is 2", 0, 0, 0)]))
    assert "priced: `join`: `grace_ms` was 1 and is 2" in caplog.text


def test_the_page_is_served_on_this_machine_until_the_job_ends(metrics: Metrics) -> None:
    (port,) = free_ports(1)
    # A file of Python may run one job behind the other.
    for _ in range(2):
        with metrics.served(Address(port)):
            metrics.set("up", "Whether the query runs.", 1)
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            assert 'headrace_spark_up{query="priced"} 1.0' in lines


def test_a_port_that_is_taken_is_a_sentence(metrics: Metrics) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken) as refused, metrics.served(Address(port)):
            pass
    assert str(refused.value) == (
        f"port {port} of 127.0.0.1 is taken; give `--metrics-port` another one"
    )


def test_an_address_of_another_machine_is_a_sentence(metrics: Metrics) -> None:
    # It is set aside for documentation, so no machine has it.
    with (
        pytest.raises(SettingsInvalid, match=r"nobody can listen at port 1 of 192\.0\.2\.1 \("),
        metrics.served(Address(1, "192.0.2.1")),
    ):
        pass


def test_a_name_that_nobody_looks_up_is_a_sentence(metrics: Metrics) -> None:
    with (
        pytest.raises(SettingsInvalid, match=r"^`a\.\.b` is no name of a host; give `--metrics-"),
        metrics.served(Address(0, "a..b")),
    ):
        pass


def _lowest(task: int, place: str | None, progress_ms: int | None, held: int) -> Note:
    return Note("lowest", place, task, progress_ms, held)


def test_the_input_that_holds_records_back_is_shown_since_when(
    metrics: Metrics, clock: Clock
) -> None:
    prices, orders, _ = PLACES
    metrics.note(1, Written(0, 0, [_lowest(0, prices, 5_000, 7), _lowest(1, prices, 5_000, 3)]))
    clock.now_s = 1_030.0
    metrics.note(2, Written(0, 0, [_lowest(0, prices, 5_000, 9)]))
    labels = '{partition="3",query="priced",topic="prices.cleaned"}'
    page = metrics.page().splitlines()
    assert f"headrace_spark_held_back_records{labels} 12.0" in page
    assert f"headrace_spark_held_back_since_seconds{labels} 1000.0" in page
    assert f"headrace_spark_lowest_progress_seconds{labels} 5.0" in page
    metrics.note(3, Written(0, 0, [_lowest(task, orders, 6_000, 1) for task in range(2)]))
    page = metrics.page().splitlines()
    assert not [line for line in page if 'topic="prices.cleaned"' in line]
    labels = '{partition="0",query="priced",topic="orders.cleaned"}'
    assert f"headrace_spark_held_back_since_seconds{labels} 1030.0" in page
    metrics.note(4, Written(0, 0, [_lowest(task, None, None, 0) for task in range(2)]))
    assert not [line for line in metrics.page().splitlines() if 'topic="orders.cleaned"' in line]


def test_the_log_says_who_holds_records_back_if_it_lasts(
    metrics: Metrics, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    said = []
    metrics.note(1, Written(0, 0, [_lowest(0, PLACES[0], 5_000, 0), _lowest(1, None, None, 0)]))
    for now_s in range(1_000, 1_600):
        clock.now_s = float(now_s)
        if now_s == 1_050:
            metrics.note(2, Written(0, 0, [_lowest(0, PLACES[0], 5_000, 7)]))
        with caplog.at_level(logging.WARNING):
            metrics.say_who_is_waited_for()
        said += [(now_s, each.getMessage()) for each in caplog.records]
        caplog.clear()
    assert [now_s for now_s, _ in said] == [1_060, 1_120, 1_240, 1_480]
    assert said[0][1].startswith(
        "priced: 7 records wait, 60 s by now, for partition 3 of `prices.cleaned`,"
        " which is at 1970-01-01T00:00:05.000+00:00; see whether its sidecar runs"
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([(PLACES[0], 5), (PLACES[1], None)], "of which no progress was seen yet"),
        (
            [(PLACES[0], 5), (PLACES[1], -1)],
            "of `orders.cleaned`, which has nothing yet",
        ),
        ([(PLACES[2], 5), (PLACES[1], 6)], "input 1, which is at 1970-01-01T00:00:00.005+00:00"),
        ([(PLACES[0], 1 << 62)], "which is at 4611686018427387904 ms"),
    ],
)
def test_the_lowest_of_several_is_named(told: list[tuple[str, int | None]], said: str) -> None:
    assert str(lowest_of(told)).endswith(said)


def test_windows_behind_a_join_wait_for_the_join() -> None:
    rows = []
    for operator, (place, name) in enumerate([("input 3", "window:sums:7"), ("a:0", "join:x")]):
        state = TaskState(MemoryRows())
        state.numbers[name] = 4
        if place == "a:0":
            state.numbers["option:input 0:a"] = 1
        TaskProgress(state, [place], {}).count(place, 5_000)
        state.save()
        row = state.rows.get(HEADER) or b""
        rows.append(StateRow(operator, 0, HEADER, "numbers", len(row), "", row))
    behind, before = waits_of(rows)
    assert behind == "operator 0 holds 4 records, and waits for operator 1"
    assert before.startswith("operator 1 holds 0 records, and waits for partition 0 of `a`")


def test_a_checkpoint_says_for_whom_its_tasks_wait() -> None:
    rows = []
    for task, places in enumerate([{"a:0": 5_000}, {"a:0": 5_000, "a:1": 7}]):
        state = TaskState(MemoryRows())
        state.numbers["join:held:records"] = 4
        progress = TaskProgress(state, ["a:0", "a:1"], {})
        for place, progress_ms in places.items():
            progress.add(place, ProgressRow(progress_ms, None))
        state.save()
        row = state.rows.get(HEADER)
        assert row is not None
        rows.append(StateRow(0, task, HEADER, "numbers", len(row), "", row))
    both, last = ("\n".join(waits_of(some)) for some in (rows, rows[1:]))
    assert both.startswith("operator 0 holds 8 records, and waits for partition 1 of `a`, of which")
    assert last.startswith("operator 0 holds 4 records, and waits for partition 1 of `a`, which is")
    assert last.endswith("at 1970-01-01T00:00:00.007+00:00")
