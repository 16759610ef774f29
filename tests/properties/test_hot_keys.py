"""Records of a hot key look up in several tasks, and find what they would find in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import LookUp, Topic, WindowStep
from headrace.spark_jobs.shapes import DEAD, JOINED, LATE
from headrace.spark_jobs.versioned.tables import Source, Versioned
from tests.chance import FEWER
from tests.oracles.versioned import joined_on_time
from tests.properties.tasks import Query, Rows, Told, record_of
from tests.properties.test_moving import (
    END_MS,
    KEYS,
    LEFT,
    LONG_MS,
    RIGHT,
    TOPICS,
    Given,
    any_order,
    cuts,
    in_batches,
    many_tasks,
    on_time,
)
from tests.properties.test_moving_windows import (
    SIZE_MS,
    Numbered,
    by_key,
    left_windows,
    regrouped,
    regrouped_rows,
    windows_of,
)

hot_keys = st.frozensets(st.sampled_from(KEYS), min_size=1)


def look_up(retention_ms: int, *, says_progress: bool = False) -> LookUp:
    """A left join by progress."""
    table = Topic("table", LEFT, Versioned(retention_ms))
    return LookUp(
        "join",
        table,
        stream=RIGHT,
        join="left",
        release="progress",
        says_progress=says_progress,
    )


def results_and_totals(
    records: Given, cut_at: list[int], tasks: int, retention_ms: int, hot: frozenset[bytes]
) -> tuple[Rows, dict[str, int]]:
    """Return what leaves, and the numbers that do not tell one task from several."""
    query = Query(look_up(retention_ms), tasks, TOPICS, hot_keys=hot)
    results = in_batches(query, records, cut_at, None)
    totals = query.operators[0].totals()
    of_table = {name: number for name, number in totals.items() if name.startswith("table:")}
    del of_table["table:time_ms"]
    others = ("join:taken", "join:joined", "join:late", "join:dropped:null-value", "task:records")
    return results, of_table | {name: totals.get(name, 0) for name in others}


@FEWER
@given(on_time, cuts, many_tasks, hot_keys)
def test_records_on_time_meet_the_version_of_their_time_and_all_count_once(
    records: Given, cut_at: list[int], tasks: int, hot: frozenset[bytes]
) -> None:
    results, totals = results_and_totals(records, cut_at, tasks, LONG_MS, hot)
    _, totals_of_one_task = results_and_totals(records, cut_at, tasks, LONG_MS, frozenset())
    versions = [record for number, record in records if number == LEFT]
    stream = [record for number, record in records if number == RIGHT]
    wanted = [(one, joined_on_time(versions, one)) for one in stream if one.value is not None]
    found = [(record_of(row), row["table_value"]) for row in results if row["verdict"] == JOINED]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert totals == totals_of_one_task


@FEWER
@given(any_order, cuts, many_tasks, hot_keys)
def test_late_records_and_rejected_versions_are_those_of_one_task(
    records: Given, cut_at: list[int], tasks: int, hot: frozenset[bytes]
) -> None:
    results, totals = results_and_totals(records, cut_at, tasks, 15, hot)
    results_of_one, totals_of_one = results_and_totals(records, cut_at, tasks, 15, frozenset())
    late, late_of_one = (
        sorted(row["offset"] for row in rows if row["verdict"] == LATE)
        for rows in (results, results_of_one)
    )
    assert late == late_of_one
    # A late record meets what its task has taken by then, in tasks of any number.
    found, wanted = (
        sorted(
            (row["batch"], row["offset"], row["offset"] not in late and row["table_value"])
            for row in rows
            if row["verdict"] == JOINED
        )
        for rows in (results, results_of_one)
    )
    assert repr(found) == repr(wanted)
    assert totals == totals_of_one


@FEWER
@given(on_time, cuts, many_tasks, hot_keys)
def test_windows_behind_a_join_leave_with_the_rows_of_all_tasks(
    records: Given, cut_at: list[int], tasks: int, hot: frozenset[bytes]
) -> None:
    windows = WindowStep("windows", 0, SIZE_MS, by_key, Numbered(), "r", is_behind=True)
    step = look_up(LONG_MS, says_progress=True)
    query = Query(step, tasks, TOPICS, (windows, regrouped), hot)
    results = in_batches(query, records, cut_at, None)
    assert sorted(left_windows(results)) == sorted(windows_of(regrouped_rows(records)))


def _records(number: int, first: int, times_ms: Sequence[int]) -> Given:
    """Records of one key in one partition, with offsets from the first on."""
    made = [
        Record(b"k", b"%d" % at_ms, at_ms, (), TOPICS[number], 0, first + place)
        for place, at_ms in enumerate(times_ms)
    ]
    return [(number, each) for each in made]


@pytest.mark.parametrize("hot", [frozenset[bytes](), frozenset({b"k"})])
def test_each_record_counts_once_and_so_does_a_rejected_version(hot: frozenset[bytes]) -> None:
    query = Query(look_up(15), 3, TOPICS, hot_keys=hot)
    told = [Told(number, 100) for number in TOPICS]
    first = [*_records(LEFT, 0, (50, 60)), *_records(RIGHT, 0, (51, 61, 62, 63))]
    results = query.take(first, told)
    results += query.take([*_records(LEFT, 2, (70, 90)), *_records(RIGHT, 4, (95,))], told)
    found = sorted(
        (row["offset"], row["table_value"], row["task"])
        for row in results
        if row["verdict"] == JOINED
    )
    assert [each[:2] for each in found] == [*enumerate((b"50", b"60", b"60", b"60", b"90"))]
    assert len({task for *_, task in found}) == (3 if hot else 1)
    totals = query.operators[0].totals()
    assert {
        name: totals[name]
        for name in ("table:taken", "table:kept", "table:dropped:expired", "task:records")
    } == {"table:taken": 4, "table:kept": 3, "table:dropped:expired": 1, "task:records": 9}
    assert (totals["join:taken"], totals["join:late"]) == (5, 1)


def test_at_equal_times_a_copy_goes_before_a_late_record_as_its_version_would() -> None:
    query = Query(look_up(LONG_MS), 3, TOPICS, hot_keys=frozenset({b"k"}))
    query.take(_records(LEFT, 0, (1,)), [Told(number, 100) for number in TOPICS])
    results = query.take([*_records(LEFT, 1, (5,)), *_records(RIGHT, 0, (5, 5, 5))])
    joined = [row["table_value"] for row in results if row["verdict"] == JOINED]
    assert joined == [b"5"] * 3


class _Failing(Source):
    """A table that fails on a value."""

    def meet(self, arrivals: Any, places: Any, asked: Any, *, all_of_them: bool) -> Any:
        if b"bad" in arrivals.records.take(places).values:
            message = "no such value"
            raise ValueError(message)
        return super().meet(arrivals, places, asked, all_of_them=all_of_them)


@dataclass(frozen=True)
class _FailingTopic(Topic):
    def open(self, state: Any) -> Source:
        return _Failing(state, self.name, self.input, self.storage)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_version_that_fails_in_all_tasks_is_dead_once(tasks: int) -> None:
    table = _FailingTopic("table", LEFT, Versioned(LONG_MS))
    step = LookUp("join", table, stream=RIGHT, join="left", release="progress")
    query = Query(step, tasks, TOPICS, hot_keys=frozenset({b"k"}))
    versions = [
        (LEFT, Record(b"k", value, 5 * offset, (), "l", 0, offset))
        for offset, value in enumerate((b"first", b"bad", b"last"))
    ]
    orders = [(RIGHT, Record(b"k", b"o", 7, (), "r", 0, offset)) for offset in range(4)]
    results = query.take([*versions, *orders], [Told(number, END_MS) for number in TOPICS])
    assert [row["offset"] for row in results if row["verdict"] == DEAD] == [1]
    assert query.operators[0].totals()["task:dead"] == 1
    joined = [row["table_value"] for row in results if row["verdict"] == JOINED]
    assert joined == [b"first"] * 4
