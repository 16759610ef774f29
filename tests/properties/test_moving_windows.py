"""Open windows that are moved into other tasks leave once, with all that they have folded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt, StateOfOtherOptions
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import LookUp, Topic, WindowStep
from headrace.spark_jobs.queries.aggregates import Regrouped
from headrace.spark_jobs.shapes import JOINED
from headrace.spark_jobs.versioned.layout import decode_numbers, encode_numbers
from headrace.spark_jobs.versioned.state import HEADER
from headrace.spark_jobs.versioned.tables import Versioned
from tests.chance import FEWER
from tests.oracles.versioned import joined_on_time
from tests.oracles.windows import Payment, folded
from tests.properties.tasks import Query, Rows, Told, moved_state
from tests.properties.test_moving import (
    END_MS,
    KEYS,
    LEFT,
    LONG_MS,
    RIGHT,
    TOPICS,
    Given,
    cuts,
    in_batches,
    move,
    on_time,
    tasks,
)

SIZE_MS = 25


class Numbered:
    """Counts the records of a window."""

    def add(self, total: bytes | None, values: Sequence[bytes]) -> bytes:
        """Add their number."""
        return b"%d" % (int(total or 0) + len(values))

    def result(self, total: bytes, start: str, end: str) -> bytes:
        """Return their number."""
        del start, end
        return total


def by_key(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the key as the group."""
    return key, value


def windows_of(records: list[Record]) -> list[tuple[bytes, bytes, int]]:
    """The rows of all windows."""
    payments = [Payment((one.key or b"").decode(), 1, one.timestamp_ms) for one in records]
    rows = folded(payments, SIZE_MS, END_MS)
    return [(row.account.encode(), b"%d" % row.records, row.end_ms - 1) for row in rows]


def left_windows(results: Rows) -> list[tuple[bytes, bytes, int]]:
    """The rows of windows that left."""
    return [
        (row["key"], row["value"], row["timestamp_ms"])
        for row in results
        if row["verdict"] == JOINED
    ]


@FEWER
@given(on_time, cuts, tasks, st.lists(tasks, max_size=3))
def test_windows_of_a_stream_leave_once_with_all_records(
    records: Given, cut_at: list[int], before: int, moves: list[int]
) -> None:
    step = WindowStep("windows", RIGHT, SIZE_MS, by_key, Numbered(), "r")
    query = Query(step, before, {RIGHT: "r"})
    own = [(number, record) for number, record in records if number == RIGHT]
    results = in_batches(query, own, cut_at, moves)
    stream = [record for _, record in own if record.value is not None]
    assert sorted(left_windows(results)) == sorted(windows_of(stream))


def regrouped(record: Record, table_value: bytes | None) -> Record:
    """A joined row goes to the group that its table's value names."""
    key = KEYS[5] if table_value is None else KEYS[6]
    return record._replace(key=key, topic="r")


def regrouped_rows(records: Given) -> list[Record]:
    """The rows of a left join on time, in their groups."""
    versions = [record for number, record in records if number == LEFT]
    return [
        regrouped(one, joined_on_time(versions, one))
        for number, one in records
        if number == RIGHT and one.value is not None
    ]


@FEWER
@given(on_time, cuts, tasks, st.lists(tasks, max_size=3))
def test_windows_behind_a_join_leave_once_with_all_rows(
    records: Given, cut_at: list[int], before: int, moves: list[int]
) -> None:
    table = Topic("table", LEFT, Versioned(LONG_MS))
    step = LookUp("join", table, stream=RIGHT, join="left", release="progress", says_progress=True)
    windows = WindowStep("windows", 0, SIZE_MS, by_key, Numbered(), "r", is_behind=True)
    query = Query(step, before, TOPICS, (windows, regrouped))
    results = in_batches(query, records, cut_at, moves)
    assert sorted(left_windows(results)) == sorted(windows_of(regrouped_rows(records)))


def _put(query: Query, records: Given, progress_ms: int) -> Rows:
    return query.take(records, [Told(RIGHT, progress_ms)])


def _at(offset: int, *keys_at: tuple[int, Sequence[bytes]]) -> Given:
    """Records of some keys at some times, which begin at an offset."""
    found = [(key, time_ms) for time_ms, keys in keys_at for key in keys]
    return [
        (RIGHT, Record(key, b"g:1", time_ms, (), "r", 0, place))
        for place, (key, time_ms) in enumerate(found, offset)
    ]


@pytest.mark.parametrize(("before", "after"), [*product((1, 3, 4), (2, 5, 8))])
def test_each_task_counts_the_windows_of_which_it_has_groups(before: int, after: int) -> None:
    step = WindowStep("windows", RIGHT, SIZE_MS, by_key, Numbered(), "r")
    query = Query(step, before, {RIGHT: "r"})
    # One window has left, one has all keys, one has two, and two have the same single key.
    first = _at(
        0, (10, KEYS), (30, KEYS), (40, KEYS[:3]), (60, KEYS[3:5]), (80, KEYS[6:]), (130, KEYS[6:])
    )
    rest = _at(len(first), (45, KEYS[2:4]), (70, KEYS), (99, KEYS[:1]))
    results = _put(query, first, SIZE_MS)
    for number in (after, before, after):
        move(query, number)
        for rows in query.operators[0].state.values():
            numbers = decode_numbers(rows[HEADER])
            counted = {
                f"windows-{name.split(':')[2]}" for name in numbers if name.startswith("window:")
            }
            assert counted == {name.rpartition("/")[0] for name in rows if name != HEADER}
    results += _put(query, rest, END_MS)
    assert sorted(left_windows(results)) == sorted(windows_of([one for _, one in first + rest]))


def test_a_window_whose_rows_are_gone_is_refused() -> None:
    step = WindowStep("windows", RIGHT, SIZE_MS, by_key, Numbered(), "r")
    query = Query(step, 3, {RIGHT: "r"})
    _put(query, _at(0, (30, KEYS)), SIZE_MS)
    state = {task: {HEADER: rows[HEADER]} for task, rows in query.operators[0].state.items()}
    with pytest.raises(StateCorrupt, match="rows of the window `window:windows:1` of this state"):
        moved_state(state, 2)


@pytest.mark.parametrize("before", [1, 3])
def test_windows_of_a_query_are_refused_since_their_groups_do_not_tell_their_keys(
    before: int,
) -> None:
    regroup = Regrouped((("account",),), (None,))
    step = WindowStep("windows", RIGHT, SIZE_MS, regroup, Numbered(), "r")
    query = Query(step, before, {RIGHT: "r"})
    accounts = [b'{"account":"%d"}' % number for number in range(20)]
    _put(query, [(n, one._replace(value=one.key)) for n, one in _at(0, (30, accounts))], SIZE_MS)
    with pytest.raises(StateOfOtherOptions, match="`windows` folds records into groups"):
        moved_state(query.operators[0].state, 4)


@pytest.mark.parametrize("first_open", [2, None])
def test_tasks_that_are_not_at_one_window_are_refused(first_open: int | None) -> None:
    step = WindowStep("windows", RIGHT, SIZE_MS, by_key, Numbered(), "r")
    query = Query(step, 3, {RIGHT: "r"})
    _put(query, _at(0, (30, KEYS)), SIZE_MS)
    state = query.operators[0].state
    numbers = decode_numbers(state[1][HEADER])
    del numbers["windows:first-open"]
    if first_open is not None:
        numbers["windows:first-open"] = first_open
    state[1][HEADER] = encode_numbers(numbers)
    with pytest.raises(StateOfOtherOptions, match="do not agree on `windows:first-open`"):
        moved_state(state, 2)
