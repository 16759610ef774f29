"""The page of metrics: whole, readable, bounded, and never backwards."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.contracts.decision import Reason
from headrace.contracts.policies import DeduplicatePolicy, SuppressPolicy
from headrace.contracts.record import Record
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.metrics_page import page
from headrace.services.observe.names.metric import Metric
from headrace.services.observe.names.of_hop import HISTOGRAMS
from headrace.services.observe.names.of_operator import OPERATOR
from headrace.services.observe.names.of_task import TASK
from headrace.services.observe.names.of_worker import WORKER
from headrace.services.observe.snapshot import TaskSnapshot
from headrace.services.operators.lateness import Lateness
from tests.observe.examples import Ran, busy_worker, clicks, page_of, task, worker

GOLDEN = Path(__file__).with_name("metrics.txt")
PAGE = Path(__file__).parents[2] / "services" / "observe" / "METRICS.md"
METRICS: tuple[Metric[Any], ...] = (*WORKER, *TASK, *OPERATOR)
NAMES = [metric.name for metric in METRICS] + [metric.name for metric in HISTOGRAMS]
LABELS = {
    "pipeline", "worker", "hop", "topic", "partition", "operator", "reason", "state", "le",
    "role", "task",
}  # fmt: skip
Series = tuple[str, frozenset[tuple[str, str]]]


def series(text: str) -> dict[Series, float]:
    """Every sample, as prometheus_client reads the page."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def counters(text: str) -> dict[str, float]:
    """As `series` of what never goes backwards, read faster and by line."""
    found = {}
    is_counter = False
    for line in text.splitlines():
        if line.startswith("#"):
            is_counter = line.endswith((" counter", " histogram"))
        elif is_counter:
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def number(text: str, name: str, **labels: str) -> float:
    """The one series with this name and at least these labels."""
    found = [
        value for key, value in series(text).items() if key[0] == name and labels.items() <= key[1]
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_the_page_is_as_it_was() -> None:
    """`python -m tests.observe > tests/observe/metrics.txt` writes it anew."""
    assert page_of(busy_worker()) == GOLDEN.read_text("utf-8")


def test_prometheus_reads_what_is_written() -> None:
    text = page_of(busy_worker())
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series(text)) == len(lines)
    assert len(set(lines)) == len(lines)


def test_every_name_of_the_table_is_on_the_page_with_its_kind_and_help() -> None:
    text = page_of(busy_worker())
    assert re.findall("# HELP (.*?) ", text) == NAMES
    assert len(set(NAMES)) == len(NAMES)
    shown = {name.removesuffix("_count") for name, _ in series(text)} | {
        name for name, _ in series(text)
    }
    behind_reorder = {name for name in NAMES if "overtime" in name}
    assert set(NAMES) - shown == behind_reorder


def test_names_and_help_are_well_made() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"headrace(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    meanings = [metric.help for metric in METRICS] + [metric.help for metric in HISTOGRAMS]
    for meaning in meanings:
        assert meaning.endswith(".")
        assert not set(meaning) & set("\\\n")


def test_the_process_is_on_the_page() -> None:
    text = Metrics(busy_worker).text().decode()
    assert number(text, "process_cpu_seconds_total") > 0
    assert number(text, "process_resident_memory_bytes") > 1 << 20


def test_names_are_escaped() -> None:
    odd = 'a "b"\\c\nd'
    text = page_of(worker(task(topic=odd), instance=odd))
    assert number(text, "headrace_worker_info", worker=odd) == 1
    assert number(text, "headrace_lag_records", topic=odd) == 0


def test_labels_are_bounded_whatever_records_say() -> None:
    def lines_after(records: list[Record]) -> int:
        ran = Ran()
        ran.take(records)
        text = page_of(worker(ran.snapshot()))
        assert {label for _, labels in series(text) for label, _ in labels} <= LABELS
        assert "user-" not in text
        return text.count("\n")

    assert lines_after(clicks(20)) == lines_after(clicks(5_000))


def test_the_number_of_series_grows_with_partitions_alone() -> None:
    def series_of(partitions: int) -> int:
        tasks = []
        for partition in range(partitions):
            ran = Ran(partition=partition)
            ran.take(clicks(20))
            tasks.append(ran.snapshot())
        return len(series(page_of(worker(*tasks))))

    one, two, nine = map(series_of, (1, 2, 9))
    assert nine - one == 8 * (two - one)
    assert two - one < 90


def test_conservation_is_broken_where_a_record_is_lost() -> None:
    ran = Ran()
    ran.take(clicks(20))
    whole = ran.snapshot()
    text = page_of(worker(whole))
    assert {
        value for (name, _), value in series(text).items() if name == "headrace_unbalanced_records"
    } == {0}
    whole.operators[1].counts.forwarded -= 1
    text = page_of(worker(replace(whole, taken_records=22, guarded_records=1)))
    assert number(text, "headrace_unbalanced_records", operator="deduplicate") == 1
    assert number(text, "headrace_unbalanced_records", operator="intake") == 1


def test_an_unknown_figure_has_no_series() -> None:
    unknown = task(end=None, position=None, readable_end=None, committed=None)
    shown = {name for name, _ in series(page_of(worker(unknown)))}
    assert not shown & {
        "headrace_lag_records",
        "headrace_position_offset",
        "headrace_end_offset",
        "headrace_committed_offset",
        "headrace_open_transaction_records",
        "headrace_heartbeat_age_seconds",
        "headrace_state_block_cache_bytes",
    }


def test_lag_and_open_transactions() -> None:
    text = page_of(worker(task(position=10, fetched=20, readable_end=40, end=100)))
    assert number(text, "headrace_lag_records") == 90
    assert number(text, "headrace_open_transaction_records") == 60
    text = page_of(worker(task(position=110, end=100)))
    assert number(text, "headrace_lag_records") == 0  # the end was asked for a moment before


def test_overtime_is_the_wait_less_the_lateness_and_not_shown_behind_a_reorder() -> None:
    ran = Ran([SuppressPolicy(until="time-limit", limit_ms=30_000)])
    ran.take(clicks(20))
    lateness = Lateness(records=4, sum_ms=10_000, max_ms=8_000)
    text = page_of(worker(ran.snapshot(lateness=lateness)))
    start = "headrace_intermediate_result_suppression_overtime"
    assert number(text, f"{start}_min_seconds", operator="suppress") == 22.0
    assert number(text, f"{start}_avg_seconds", operator="suppress") == 27.5
    assert number(text, "headrace_record_lateness_avg_seconds") == 2.5


def test_a_reason_has_a_zero_to_begin_with() -> None:
    text = page_of(worker(Ran().snapshot()))
    labels = {"operator": "deduplicate", "reason": Reason.DUPLICATE.value}
    assert number(text, "headrace_dropped_records_total", **labels) == 0


def test_counters_of_a_partition_that_left_stay_and_its_gauges_go() -> None:
    ran = Ran()
    ran.take(clicks(60))
    seen = [ran.snapshot()]
    metrics = Metrics(lambda: worker(*seen))
    before = metrics.text().decode()
    metrics.retire(seen.pop())
    after = metrics.text().decode()
    own = {name: value for name, value in counters(before).items() if name.startswith("headrace")}
    assert own != {}
    assert own.items() <= counters(after).items()
    assert "headrace_lag_records{" not in after
    assert "headrace_held_records{" not in after


def test_a_partition_that_closes_while_it_is_opened_again_is_one_series() -> None:
    closing, opened = task(taken_records=5, state="closing"), task(taken_records=7)
    text = page_of(worker(closing, opened))
    assert number(text, "headrace_taken_records_total", partition="3") == 12
    assert len(series(text)) == len([line for line in text.splitlines() if line[0] != "#"])


def test_counters_are_read_as_whole_numbers() -> None:
    """Floats that add up in another order would sometimes go backwards by their last digit."""
    busy = busy_worker()
    of: dict[int, list[object]] = {
        id(WORKER): [busy],
        id(TASK): list(busy.tasks),
        id(OPERATOR): list(busy.tasks[0].operators),
    }
    for table in (WORKER, TASK, OPERATOR):
        counters: list[Metric[Any]] = [metric for metric in table if metric.kind == "counter"]
        for metric in counters:
            for reading in map(metric.read, of[id(table)]):
                numbers = reading.values() if isinstance(reading, dict) else [reading]
                assert {type(each) for each in numbers} <= {int, type(None)}, metric.name


SHORT_CHAIN = [DeduplicatePolicy(by="key", interval_ms=60_000)]
STEPS = st.tuples(st.integers(0, 2), st.one_of(st.integers(1, 9), st.just("close")))


@given(st.lists(STEPS, max_size=12))
def test_counters_never_go_backwards(steps: list[tuple[int, int | str]]) -> None:
    """Partitions take records, leave, and come back, in any order."""
    opened: dict[int, Ran] = {}
    taken: dict[int, int] = defaultdict(int)
    metrics = Metrics(lambda: worker(*(ran.snapshot() for ran in opened.values())))
    before: dict[str, float] = {}
    for partition, step in steps:
        if isinstance(step, str):
            if partition in opened:
                metrics.retire(opened.pop(partition).snapshot())
        else:
            opened.setdefault(partition, Ran(SHORT_CHAIN, partition))
            opened[partition].take(clicks(step))
            taken[partition] += step
        now = counters(metrics.text().decode())
        assert {key: value for key, value in before.items() if now[key] < value} == {}
        before = now
    text = metrics.text().decode()
    for partition, records in taken.items():
        counted = number(text, "headrace_taken_records_total", partition=str(partition))
        assert counted == records
    if taken:
        assert number(text, "headrace_commit_records_sum") == sum(taken.values())


def test_a_large_worker_is_read_in_little_time() -> None:
    """About 10 ms for 64 partitions of four operators; prometheus_client's writer takes 85."""
    tasks: list[TaskSnapshot] = []
    for partition in range(64):
        ran = Ran(partition=partition)
        ran.take(clicks(20))
        tasks.append(ran.snapshot())
    metrics = Metrics(lambda: worker(*tasks))
    calls = Counter[str]()
    sys.setprofile(lambda _frame, event, _of: calls.update([event]))
    try:
        text = metrics.text()
    finally:
        sys.setprofile(None)
    lines = text.count(b"\n")
    assert lines > 4_000
    # A measure that no machine and no load changes; it is 3.4 a line.
    assert calls["call"] < 5 * lines


def test_the_page_of_names_is_up_to_date() -> None:
    """`make metrics` writes it."""
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize(
    "name",
    [
        "record-lateness-avg", "record-lateness-max", "late-record-drop-total",
        "expired-window-record-drop-total", "suppression-emit-total",
        "suppression-buffer-size-current", "suppression-buffer-size-avg",
        "suppression-buffer-size-max", "suppression-buffer-count-current",
        "suppression-buffer-count-avg", "suppression-buffer-count-max",
        "intermediate-result-suppression-overtime-min",
        "intermediate-result-suppression-overtime-avg",
    ],
)  # fmt: skip
def test_all_metrics_of_the_proposal_are_there(name: str) -> None:
    mirrors = {metric.mirrors: metric.name for metric in METRICS}
    ours = mirrors[f"{name} (KIP-328)"]
    spelt = "headrace_" + name.replace("-", "_")
    assert ours in {spelt, f"{spelt}_seconds", f"{spelt}_bytes"}
