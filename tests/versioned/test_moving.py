"""State of several tasks, moved: numbers that hold for all, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer, StateOfOtherOptions
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import AggregateStep, LookUp, Topic
from headrace.spark_jobs.versioned.layout import (
    decode_numbers,
    decode_versions,
    encode_numbers,
    encode_slices,
)
from headrace.spark_jobs.versioned.spread import TASKS_BY_KEY, task_of, xxhash64
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import RUN, TableRows, rows_number
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import count
from tests.properties.tasks import Operator, Query, check_tables, moved_state

LEFT, RIGHT = 0, 1
TOPICS = {LEFT: "l", RIGHT: "r"}
LONG_MS = 1 << 40
KEYS = tuple(b"k%d" % number for number in range(7))
State = Mapping[int, Mapping[str, bytes]]


def regroup(_: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The group of a row."""
    return value[:1], value


def _numbers(state: State) -> dict[int, dict[str, int]]:
    return {task: decode_numbers(rows[HEADER]) for task, rows in state.items()}


def _looked_up(records: list[tuple[int, Record]], before: int) -> Operator:
    table = Topic("table", LEFT, Versioned(LONG_MS))
    query = Query(LookUp("join", table, stream=RIGHT, grace_ms=50), before, TOPICS)
    query.take(records)
    return query.operators[0]


def _some(count: int) -> list[tuple[int, Record]]:
    return [
        (side, Record(key, b"g:1", time_ms, (), TOPICS[side], 0, time_ms))
        for time_ms in range(count)
        for side, key in ((LEFT, KEYS[time_ms % 7]), (RIGHT, KEYS[time_ms % 5]))
    ]


def _changed(operator: Operator, task: int, **numbers: int | None) -> dict[int, dict[str, bytes]]:
    """The state with other numbers in the header of a task."""
    state = {number: dict(rows) for number, rows in operator.state.items()}
    header = decode_numbers(state[task][HEADER])
    for name, number in numbers.items():
        if number is None:
            del header[name]
        else:
            header[name] = number
    state[task][HEADER] = encode_numbers(header)
    return state


def test_time_does_not_go_back_for_any_key() -> None:
    operator = _looked_up(_some(40), 4)
    before = _numbers(operator.state)
    after = _numbers(moved_state(operator.state, 3))
    for name in ("join:time_ms", "table:time_ms", "task:sequence", "task:arrivals"):
        highest = max(numbers[name] for numbers in before.values())
        assert {numbers[name] for numbers in after.values()} == {highest}


def test_tables_of_many_rows_are_moved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROW_BYTES", "ROW_BYTES_MIN"):
        monkeypatch.setattr(f"headrace.spark_jobs.versioned.table_rows.{name}", 100)
    keys = [b"k%d" % number for number in range(300)]
    records = [(LEFT, Record(key, b"v", 0, (), "l", 0, at)) for at, key in enumerate(keys)]
    state: Mapping[int, MemoryRows] = _looked_up(records, 3).state
    counts = {numbers[rows_number("table")] for numbers in _numbers(state).values()}
    assert len(counts) > 1, "the tasks have different numbers of rows"
    for tasks in (5, 2, 1, 4):
        state = moved_state(state, tasks)
        placed = []
        for task, rows in state.items():
            check_tables(rows)
            table = TableRows(TaskState(rows), "table")
            for place, row in enumerate(table.all_rows()):
                for key in {} if row is None else decode_versions(row):
                    assert (task_of(key, 0, tasks), table.place_of(key)) == (task, place)
                    placed.append(key)
        assert sorted(placed) == sorted(keys)


def test_runs_become_rows_of_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark_jobs.versioned.runs.RUN_VERSIONS_MIN", 1)
    table = Topic("table", LEFT, Versioned(LONG_MS))
    query = Query(LookUp("join", table, stream=RIGHT), 3, TOPICS)
    for first_ms in (0, 50, 100):
        query.take(_versions(first_ms))
    query.take([(LEFT, Record(KEYS[0], b"late 70", 70, (), "l", 0, 0))])
    state = query.operators[0].state
    names = {name for rows in state.values() for name in rows}
    assert {name for name in names if ":run:2/" in name}
    asked = [
        (RIGHT, Record(key, b"late", time_ms, (), "r", 0, time_ms))
        for key in KEYS
        for time_ms in range(0, 150, 3)
    ]
    query.move(2)
    moved_rows = query.operators[0].state
    assert not {name for rows in moved_rows.values() for name in rows if RUN in name}
    assert not {
        name for numbers in _numbers(moved_rows).values() for name in numbers if RUN in name
    }
    met = {
        (row["key"], row["timestamp_ms"]): row["table_value"]
        for row in query.take(asked)
        if row["verdict"] == "joined"
    }
    expected = {}
    for key in KEYS:
        for time_ms in range(0, 150, 3):
            number = KEYS.index(key)
            at_ms = time_ms - (time_ms - number) % 7
            expected[key, time_ms] = b"%d" % at_ms if at_ms >= 0 else None
    expected |= {(KEYS[0], time_ms): b"late 70" for time_ms in (72, 75)}
    assert met == {asked: value for asked, value in expected.items() if value is not None}


def _versions(first_ms: int) -> list[tuple[int, Record]]:
    """Fifty versions of keys in turn, each of its time, and a look-up of each key behind them."""
    after_ms = first_ms + 50
    puts = [
        (LEFT, Record(KEYS[time_ms % 7], b"%d" % time_ms, time_ms, (), "l", 0, time_ms))
        for time_ms in range(first_ms, after_ms)
    ]
    asks = [(RIGHT, Record(key, b"", after_ms, (), "r", 0, after_ms)) for key in KEYS]
    return [*puts, *asks]


def test_a_shorter_retention_of_some_tasks_leaves_what_they_forgot_forgotten() -> None:
    operator = _looked_up(_some(40), 4)
    shorter = {"option:table:retention_ms": 5}
    after = _numbers(moved_state(_changed(operator, 2, **shorter), 6))
    time_ms = _numbers(operator.state)[2]["table:time_ms"]
    assert {one["table:forgotten_ms"] for one in after.values()} == {time_ms - 5}
    assert {one["option:table:retention_ms"] for one in after.values()} == {LONG_MS}


def test_counters_are_in_the_first_task_and_all_tasks_balance() -> None:
    operator = _looked_up(_some(40), 4)
    after = _numbers(moved_state(operator.state, 3))
    assert [task for task, numbers in after.items() if "table:kept" in numbers] == [0]
    assert after[0]["table:kept"] == 40
    held = [numbers["join:held:records"] for numbers in after.values()]
    assert [after[task]["join:taken"] for task in (1, 2)] == held[1:]
    assert sum(numbers["join:taken"] for numbers in after.values()) == 40


def test_state_that_cannot_be_moved_is_refused() -> None:
    operator = _looked_up(_some(9), 3)
    by_partition = {TASKS_BY_KEY: None, "option:tasks:by-partition": 1}
    with pytest.raises(StateOfOtherOptions, match="the tasks of this checkpoint are partitions"):
        moved_state(_changed(operator, 1, **by_partition), 4)
    with pytest.raises(StateLayoutNewer, match="what the number `join:colour` of a state means"):
        moved_state(_changed(operator, 1, **{"join:colour": 3}), 4)
    with pytest.raises(StateOfOtherOptions, match="do not agree on `join:progress_ms`"):
        moved_state(_changed(operator, 1, **{"join:progress_ms": 3}), 4)
    with pytest.raises(StateOfOtherOptions, match="do not agree on `progress:l:0`"):
        moved_state(_changed(operator, 1, **{"progress:l:0": 3}), 4)


def test_a_step_with_stages_is_not_moved_into_one_task_or_out_of_it() -> None:
    step = AggregateStep("count", Topic("table", LEFT, Plain()), regroup, count())
    split = Query(step, 2, TOPICS)
    split.take(_some(9))
    with pytest.raises(StateOfOtherOptions, match="`count` sends rows to other tasks"):
        moved_state(split.operators[0].state, 1)
    assert set(moved_state(split.operators[0].state, 3)) == {0, 1, 2}
    numbers = {"buckets": 64, TASKS_BY_KEY: 1, "step:count:AggregateStep": 1}
    headers = {0: {HEADER: encode_numbers(numbers)}}
    with pytest.raises(StateOfOtherOptions, match="a job with one task keeps its state otherwise"):
        moved_state(headers, 2)


def test_rows_that_are_not_understood_are_refused() -> None:
    operator = _looked_up(_some(9), 3)
    state = {task: dict(rows) for task, rows in operator.state.items()}
    state[1]["other/slices"] = encode_slices([1])
    with pytest.raises(StateCorrupt, match="the row `other/slices` of this state is of slices"):
        moved_state(state, 4)
    state = {task: dict(rows) for task, rows in operator.state.items()}
    name = next(name for name in state[1] if name.startswith("table/"))
    swapped = {**state, 2: {**state[2], name: state[1][name]}}
    with pytest.raises(StateCorrupt, match=f"the row `{name}` of task 2 has a key"):
        moved_state(swapped, 4)
    name = next(
        name
        for rows in state.values()
        for name in rows
        if name.startswith("join:held/") and not name.endswith("slices")
    )
    for rows in state.values():
        rows.pop(name, None)
    with pytest.raises(StateCorrupt, match=f"the row `{name}` of held records is gone"):
        moved_state(state, 4)


def test_a_task_is_the_one_that_spark_computes() -> None:
    """The numbers are Spark's own, of `xxhash64` of a column of bytes."""
    assert [xxhash64(key) for key in (b"", b"ann", b"12345678", bytes(range(31)))] == [
        -7444071767201028348,
        7160020621161744715,
        6863040065134489090,
        -8988936099728967847,
    ]
    assert xxhash64(bytes(range(32))) == -8644129751861931918
    assert xxhash64(bytes(range(100))) == -9107075101236275961
    assert xxhash64(b"\xff" * 77) == -8516435585658809628
    assert [task_of(b"", 5, 7), task_of(b"ann", 5, 7), task_of(None, 5, 4)] == [
        -7444071767201028348 % 7,
        7160020621161744715 % 7,
        1,
    ]
