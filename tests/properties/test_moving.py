"""State that is moved into other tasks goes on as if it had always been there.

Every kind of topology takes a first part of its input in some number of tasks and the rest in
another number. Its results are judged by an oracle that knows of no tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    StreamJoin,
    Topic,
)
from headrace.spark_jobs.shapes import CHANGED, CORRECTED, JOINED
from headrace.spark_jobs.versioned.layout import decode_numbers
from headrace.spark_jobs.versioned.state import HEADER
from headrace.spark_jobs.versioned.table_rows import PREFIX
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import count, read_long, sum_of
from tests.chance import FEWER
from tests.oracles.versioned import joined_on_time, latest_rows, met_within
from tests.properties.tasks import Query, Rows, Told, moved_state, record_of

LEFT, RIGHT = 0, 1
TOPICS = {LEFT: "l", RIGHT: "r"}
LONG_MS, END_MS = 1 << 40, 1 << 41
KEYS = tuple(b"k%d" % number for number in range(7))
VALUES = (b"g:1", b"g:2", b"h:1", b"i:1", None)

Given = list[tuple[int, Record]]
times_ms = st.integers(0, 60)
tasks = st.integers(1, 8)
many_tasks = st.integers(2, 8)


@st.composite
def inputs(draw: st.DrawFn, *, keys: Sequence[bytes | None] = KEYS, sorted_by_time: bool) -> Given:
    """Records of two inputs, each with offsets of its own."""
    values = st.sampled_from(VALUES)
    drawn = st.tuples(st.booleans(), st.sampled_from(keys), values, times_ms)
    found = draw(st.lists(drawn, min_size=2, max_size=40))
    if sorted_by_time:
        found.sort(key=lambda one: one[3])
    offsets = Counter[int]()
    records: Given = []
    for side, key, value, time_ms in found:
        number = int(side)
        records.append(
            (number, Record(key, value, time_ms, (), TOPICS[number], 0, offsets[number]))
        )
        offsets[number] += 1
    return records


on_time = inputs(sorted_by_time=True)
any_order = inputs(sorted_by_time=False)
cuts = st.lists(st.integers(0, 40), min_size=1, max_size=4)


def in_batches(
    query: Query, records: Given, cut_at: list[int], moves: Sequence[int] | None
) -> Rows:
    """Return all results, with the number of their micro-batch; move between them, or never."""
    cuts_there = {cut for cut in cut_at if cut < len(records)}
    bounds = sorted({0, len(records), *cuts_there})
    results: Rows = []
    to = iter(moves or ())
    for number, (start, end) in enumerate(pairwise(bounds)):
        if number and moves is not None:
            move(query, next(to, query.tasks))
        rest = records[end:]
        told = [Told(each, rest[0][1].timestamp_ms if rest else END_MS) for each in TOPICS]
        batch = query.take(records[start:end], told if query.waits else ())
        results += [{**row, "batch": number} for row in batch]
    return results


def move(query: Query, to: int) -> None:
    """Move a query, and compare what must not change by it."""
    before = [operator.totals() for operator in query.operators]
    query.move(to)
    for operator, totals in zip(query.operators, before, strict=True):
        assert len(operator.state) in {0, to}
        for name, total in operator.totals().items():
            last = name.rpartition(":")[2]
            if name.startswith(PREFIX):
                continue
            if last in {"taken", "joined", "kept", "passed", "forgone", "bytes"} or (
                last == "records" or name.startswith("window:")
            ):
                assert (name, total) == (name, totals[name])


def believed(results: Rows) -> dict[bytes, bytes]:
    """Return the table that a reader of the results has."""
    table = {row["key"]: row["value"] for row in results if row["verdict"] == CHANGED}
    return {key: value for key, value in table.items() if value is not None}


def rows_after(records: Given, number: int, *, by_time: bool) -> dict[bytes, bytes]:
    """A side's table at the end, recomputed from scratch."""
    own = [record for side, record in records if side == number]
    return latest_rows(own, LONG_MS if by_time else None)


def joined_values(left: bytes | None, right: bytes | None) -> bytes:
    """Both, with a mark for what is missing."""
    return b"%s+%s" % (b"-" if left is None else left, b"-" if right is None else right)


def foreign_key(_: bytes, value: bytes) -> bytes | None:
    """The key that a value points at."""
    return {b"g": KEYS[0], b"h": KEYS[1]}.get(value[:1])


def regroup(key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """The group of a row."""
    group = foreign_key(key, value)
    return None if group is None else (group, value)


stores = st.sampled_from((Plain(), Versioned(LONG_MS)))


@FEWER
@given(on_time, cuts, tasks, st.lists(tasks, max_size=3))
@pytest.mark.parametrize("says", [False, True])
def test_look_ups_by_progress_leave_once_with_the_version_of_their_time(
    says: Any, records: Given, cut_at: list[int], before: int, moves: list[int]
) -> None:
    table = Topic("table", LEFT, Versioned(LONG_MS))
    step = LookUp("join", table, stream=RIGHT, join="left", release="progress", says_progress=says)
    results = in_batches(Query(step, before, TOPICS), records, cut_at, moves)
    versions = [record for number, record in records if number == LEFT]
    stream = [record for number, record in records if number == RIGHT]
    wanted = [(one, joined_on_time(versions, one)) for one in stream if one.value is not None]
    found = [(record_of(row), row["table_value"]) for row in results if row["verdict"] == JOINED]
    assert sorted(found, key=_offset) == sorted(wanted, key=_offset)
    assert not [row for row in results if row["verdict"] == "late"]
    assert_in_sequence(results)


def _offset(row: tuple[Record, bytes | None]) -> int:
    assert row[0].offset is not None
    return row[0].offset


def assert_in_sequence(results: Rows) -> None:
    """Fail unless a later row of a key has a higher sequence, whichever task it is of."""
    last: dict[bytes, int] = {}
    for row in results:
        if row["verdict"] in {JOINED, CHANGED} and row["key"] is not None:
            assert row["sequence"] > last.get(row["key"], -1)
            last[row["key"]] = row["sequence"]


@FEWER
@given(any_order, cuts, tasks, st.lists(tasks, max_size=3), st.sampled_from((None, 0, 9)))
def test_the_last_word_of_corrections_by_stream_time_is_right(
    records: Given, cut_at: list[int], before: int, moves: list[int], grace_ms: int | None
) -> None:
    table = Topic("table", LEFT, Versioned(LONG_MS))
    step = LookUp("join", table, stream=RIGHT, join="left", grace_ms=grace_ms, corrects=True)
    query = Query(step, before, TOPICS)
    results = in_batches(query, records, cut_at, moves)
    # A record of each key that is far behind releases all that is held.
    offset = len(records)
    ends = [Record(key, b"end", LONG_MS, (), "r", 0, offset + at) for at, key in enumerate(KEYS)]
    results += query.take([(RIGHT, one) for one in ends])
    versions = [record for number, record in records if number == LEFT]
    last: dict[int, bytes | None] = {}
    left = Counter[int]()
    for row in results:
        if row["verdict"] in {JOINED, CORRECTED} and row["offset"] < offset:
            last[row["offset"]] = row["table_value"]
            left[row["offset"]] += row["verdict"] == JOINED
    stream = [one for number, one in records if number == RIGHT and one.value is not None]
    assert last == {one.offset: joined_on_time(versions, one) for one in stream}
    assert set(left.values()) <= {1}


@FEWER
@given(any_order, cuts, tasks, st.lists(tasks, max_size=3), st.tuples(stores, stores))
@pytest.mark.parametrize("join", ["inner", "left", "outer"])
def test_tables_joined_by_primary_key_are_those_of_the_oracle(
    join: Any, records: Given, cut_at: list[int], before: int, moves: list[int], both: Any
) -> None:
    left, right = both
    sides = Topic("left", LEFT, left), Topic("right", RIGHT, right)
    step = JoinStep("join", *sides, joined_values, join)
    results = in_batches(Query(step, before, TOPICS), records, cut_at, moves)
    lefts = rows_after(records, LEFT, by_time=isinstance(left, Versioned))
    rights = rows_after(records, RIGHT, by_time=isinstance(right, Versioned))
    keys = lefts.keys() & rights.keys() if join == "inner" else lefts.keys()
    keys = lefts.keys() | rights.keys() if join == "outer" else keys
    wanted = {key: joined_values(lefts.get(key), rights.get(key)) for key in keys}
    assert believed(results) == wanted
    assert_in_sequence(results)


@FEWER
@given(any_order, cuts, many_tasks, st.lists(many_tasks, max_size=3), st.tuples(stores, stores))
@pytest.mark.parametrize("join", ["inner", "left"])
def test_tables_joined_by_foreign_key_are_those_of_the_oracle(
    join: Any, records: Given, cut_at: list[int], before: int, moves: list[int], both: Any
) -> None:
    left, right = both
    sides = Topic("left", LEFT, left), Topic("right", RIGHT, right)
    step = ForeignKeyStep("join", *sides, foreign_key, joined_values, join)
    results = in_batches(Query(step, before, TOPICS), records, cut_at, moves)
    lefts = rows_after(records, LEFT, by_time=isinstance(left, Versioned))
    rights = rows_after(records, RIGHT, by_time=isinstance(right, Versioned))
    met = {key: rights.get(foreign_key(key, value) or b"?") for key, value in lefts.items()}
    wanted = {
        key: joined_values(value, met[key])
        for key, value in lefts.items()
        if join == "left" or met[key] is not None
    }
    assert believed(results) == wanted


@FEWER
@given(any_order, cuts, many_tasks, st.lists(many_tasks, max_size=3), stores)
def test_aggregates_are_those_of_their_rows(
    records: Given, cut_at: list[int], before: int, moves: list[int], store: Any
) -> None:
    step = AggregateStep("count", Topic("table", LEFT, store), regroup, count())
    results = in_batches(Query(step, before, TOPICS), records, cut_at, moves)
    rows = rows_after(records, LEFT, by_time=isinstance(store, Versioned))
    groups = [foreign_key(*row) for row in rows.items()]
    totals = {group: read_long(packed) for group, packed in believed(results).items()}
    assert {group: totals.get(group, 0) for group in KEYS[:2]} == {
        group: groups.count(group) for group in KEYS[:2]
    }


@FEWER
@given(
    inputs(keys=(*KEYS, None), sorted_by_time=True),
    cuts,
    tasks,
    st.lists(tasks, max_size=3),
    st.integers(0, 20),
)
@pytest.mark.parametrize("join", ["inner", "left", "outer"])
def test_streams_meet_once_within_their_window(
    join: Any, records: Given, cut_at: list[int], before: int, moves: list[int], within_ms: int
) -> None:
    step = StreamJoin("join", (LEFT, RIGHT), joined_values, within_ms, join)
    results = in_batches(Query(step, before, TOPICS), records, cut_at, moves)
    lefts, rights = (
        [one for number, one in records if number == side and one.value is not None]
        for side in (LEFT, RIGHT)
    )
    wanted = [
        (key, joined_values(*values), time_ms)
        for key, *values, time_ms in met_within(lefts, rights, within_ms, join)
    ]
    found = [
        (row["key"], row["value"], row["timestamp_ms"])
        for row in results
        if row["verdict"] == JOINED
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def _weight(value: bytes) -> int:
    """The number behind the colon; a weight of nine cannot be added."""
    weight = int(value[2:])
    if weight == 9:
        message = "too heavy"
        raise ValueError(message)
    return weight


@FEWER
@given(many_tasks, st.lists(many_tasks, min_size=1, max_size=3))
def test_a_value_that_stands_in_a_group_is_taken_out_after_a_move(
    before: int, moves: list[int]
) -> None:
    step = AggregateStep("sum", Topic("table", LEFT, Plain()), regroup, sum_of(_weight))
    query = Query(step, before, TOPICS)

    def put(offset: int, *values: bytes | None) -> Rows:
        rows = enumerate(zip(KEYS, values, strict=False), offset)
        return query.take(
            [(LEFT, Record(key, value, 0, (), "l", 0, at)) for at, (key, value) in rows]
        )

    put(0, b"g:1", b"g:2", b"g:3", b"h:4")
    # The groups cannot add these, so the values before stand in them.
    put(10, b"g:9", b"g:9", b"g:4", b"h:9")
    for tasks_now in moves:
        move(query, tasks_now)
    results = put(20, b"h:5", None, b"g:6", b"h:7")
    totals = {group: read_long(packed) for group, packed in believed(results).items()}
    assert totals == {KEYS[0]: 6, KEYS[1]: 12}
    assert sum(operator.totals()["sum:forgone"] for operator in query.operators) == 0


@FEWER
@given(any_order, many_tasks, many_tasks)
def test_rows_that_are_moved_there_and_back_are_the_same(
    records: Given, before: int, after: int
) -> None:
    sides = Topic("left", LEFT, Versioned(LONG_MS)), Topic("right", RIGHT, Plain())
    query = Query(
        ForeignKeyStep("join", *sides, foreign_key, joined_values, "left"), before, TOPICS
    )
    query.take(records)
    for operator in query.operators:
        if not operator.state:
            continue
        there = moved_state(operator.state, after)
        back = moved_state(there, before)
        assert {task: _keyed(rows) for task, rows in back.items() if len(rows) > 1} == {
            task: _keyed(rows) for task, rows in operator.state.items() if len(rows) > 1
        }
        assert _numbers(moved_state(back, before)) == _numbers(back)


def _keyed(rows: Any) -> dict[str, bytes]:
    return {name: row for name, row in rows.items() if name != HEADER}


def _numbers(state: Any) -> dict[int, dict[str, int]]:
    return {task: decode_numbers(rows[HEADER]) for task, rows in state.items()}
