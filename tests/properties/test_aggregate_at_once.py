"""The stages of an aggregation take many rows at once as they take them one by one.

Results, state and failures are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import PART
from headrace.spark_jobs.operators.grouped import PART_SENT, FoldedStep, PartStep
from headrace.spark_jobs.operators.messages import received
from headrace.spark_jobs.operators.pieces import in_pieces
from headrace.spark_jobs.operators.running import OpenTask, open_topology
from headrace.spark_jobs.operators.topology import AggregateStep, FilterStep, Step, Topic
from headrace.spark_jobs.versioned.aggregation import Regrouping
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals, observe_lateness
from headrace.spark_jobs.versioned.changes import Updates, all_changes
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.state import MERGED, MemoryRows, TaskState
from headrace.spark_jobs.versioned.tables import Plain, Storage, StoredTable, Versioned
from headrace.spark_jobs.versioned.totals import Aggregation, Form
from tests.properties.folding import (
    BUCKETS,
    FEW,
    JOINED,
    KEPT_APART,
    LISTED,
    MANY,
    OTHER,
    OWN,
    Drawn,
    group_of,
    parts_in,
    rows_in,
)
from tests.properties.messages import sent
from tests.properties.strategies import chance, seeds
from tests.versioned.taken import run

pytestmark = pytest.mark.usefixtures("no_runs")
"""The states of both are compared, and only a table that takes a batch at once writes runs."""

storages = st.sampled_from((Plain(), Versioned(5), Versioned(1_000)))
Row = tuple[Any, ...]
Way = Callable[[TaskState, AggregateStep, Sequence[Arrival]], list[Row]]


def _some(_: bytes, value: bytes) -> bool:
    return not value.endswith(b"7")


def _parts_at_once(state: TaskState, step: AggregateStep, batch: Sequence[Arrival]) -> list[Row]:
    stage = open_topology(PartStep(step.name, step.parent, step), state)
    (results,) = stage.process(Arrivals.of(batch))
    assert results.verdict == PART_SENT
    _, causes, records, keys, values, times_ms, *_ = results
    columns = [each.tolist() for each in (causes, keys, values, times_ms)]
    return [(*row, *record[3:]) for *row, record in zip(*columns, records, strict=True)]


def _parts_one_by_one(state: TaskState, step: AggregateStep, batch: Sequence[Arrival]) -> list[Row]:
    parent = step.parent.open(state)
    parent.send_old(force=True)
    regrouping = Regrouping(state, step.name, step.regroup)
    observe_lateness(state, batch)
    rows: list[Row] = []
    for change in run(parent, batch):
        for part in regrouping.split(change, versioned=parent.versioned):
            message = sent(part.record, part.old, part.new, change.key)
            rows.append((part.cause, part.key, message, part.timestamp_ms, *part.record[3:]))
    return rows


def _folded_at_once(state: TaskState, step: AggregateStep, batch: Sequence[Arrival]) -> list[Row]:
    table = FoldedStep(step.name, step, updates=step.updates).open(state)
    table.send_old(force=step.name == "old")
    # The second half of a batch finds the aggregates of the first one.
    half = len(batch) // 2
    halves = (0, Arrivals.of(batch[:half])), (half, Arrivals.of(batch[half:]))
    return [
        one._replace(cause=first + one.cause)
        for first, piece in halves
        for one in all_changes(table, piece).one_by_one()
    ]


def _folded_one_by_one(
    state: TaskState, step: AggregateStep, batch: Sequence[Arrival]
) -> list[Row]:
    table = FoldedStep(step.name, step).open(state)
    table.send_old(force=step.name == "old")
    return [*run(table, batch)]


def _last_at_once(state: TaskState, step: AggregateStep, batch: Sequence[Arrival]) -> list[Row]:
    return _folded_at_once(state, replace(step, updates="last"), batch)


def _last_one_by_one(state: TaskState, step: AggregateStep, batch: Sequence[Arrival]) -> list[Row]:
    rows, half = _folded_one_by_one(state, step, batch), len(batch) // 2
    halves = [row for row in rows if row[0] < half], [row for row in rows if row[0] >= half]
    told: list[Row] = []
    for piece in halves:
        by_group: dict[bytes, list[Any]] = {}
        for row in piece:
            by_group.setdefault(row[1], []).append(row)
        left = [rows[-1]._replace(old=rows[0].old) for rows in by_group.values()]
        told += sorted(left, key=itemgetter(0))
        state.count(MERGED, len(piece) - len(left))
    return told


def _taken(
    way: Way, step: AggregateStep, batches: Sequence[tuple[Sequence[Arrival], Sequence[Arrival]]]
) -> list[tuple[list[Row], dict[str, bytes]]]:
    """Return the results of each batch, and the state behind it; some arrivals are forgone."""
    rows = MemoryRows()
    told = []
    for forgone, batch in batches:
        for arrival in forgone:
            state = TaskState(rows, BUCKETS)
            open_topology(FoldedStep(step.name, step), state)
            state.forgo(arrival)
            state.save()
        state = TaskState(rows, BUCKETS)
        results = way(state, step, batch)
        state.save()
        told.append((results, dict(rows)))
    return told


def _compare_parts(random: Random, drawn: Drawn, parent: Step) -> None:
    step = AggregateStep("total", parent, group_of, LISTED)
    batches = [((), rows_in(random, drawn)) for _ in range(3)]
    expected = _taken(_parts_one_by_one, step, batches)
    assert _taken(_parts_at_once, step, batches) == expected


def _compare_folded(
    random: Random,
    drawn: Drawn,
    step: AggregateStep,
    *,
    at_once: Way = _folded_at_once,
    one_by_one: Way = _folded_one_by_one,
) -> None:
    batches = []
    for _ in range(3):
        batch = parts_in(random, drawn)
        forgone = random.sample(batch, k=min(len(batch), random.randrange(drawn.rows)))
        batches.append((forgone, [each for each in batch if each not in forgone]))
    assert _taken(at_once, step, batches) == _taken(one_by_one, step, batches)


@given(seed=seeds, storage=storages, filters=st.booleans())
def test_changes_are_regrouped_at_once_as_one_by_one(
    seed: int, storage: Storage, *, filters: bool
) -> None:
    parent: Step = Topic("own", OWN, storage)
    if filters:
        parent = FilterStep("some", parent, _some)
    _compare_parts(chance(seed), FEW, parent)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("storage", [Plain(), Versioned(60)])
def test_many_changes_are_regrouped_at_once_as_one_by_one(seed: int, storage: Storage) -> None:
    _compare_parts(chance(seed), MANY, Topic("own", OWN, storage))


@given(
    seed=seeds,
    storage=st.one_of(st.none(), storages),
    aggregation=st.sampled_from((LISTED, JOINED, KEPT_APART)),
    name=st.sampled_from(("total", "old")),
)
def test_parts_are_folded_at_once_as_one_by_one(
    seed: int, storage: Storage | None, aggregation: Aggregation, name: str
) -> None:
    step = AggregateStep(name, Topic("own", OWN, Plain()), group_of, aggregation, storage)
    _compare_folded(chance(seed), FEW, step)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["total", "old"])
@pytest.mark.parametrize("storage", [None, Versioned(60)])
def test_many_parts_are_folded_at_once_as_one_by_one(
    seed: int, storage: Storage | None, name: str
) -> None:
    step = AggregateStep(name, Topic("own", OWN, Plain()), group_of, LISTED, storage)
    _compare_folded(chance(seed), MANY, step)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["total", "old"])
@pytest.mark.parametrize("aggregation", [LISTED, JOINED, KEPT_APART])
@pytest.mark.parametrize("drawn", [FEW, MANY])
def test_the_last_change_of_a_group_is_the_one_that_leaves_one_by_one(
    seed: int, name: str, aggregation: Aggregation, drawn: Drawn
) -> None:
    step = AggregateStep(name, Topic("own", OWN, Plain()), group_of, aggregation)
    ways: dict[str, Way] = {"at_once": _last_at_once, "one_by_one": _last_one_by_one}
    _compare_folded(chance(seed), drawn, step, **ways)


def test_a_value_leaves_the_old_group_before_it_is_in_the_new_one() -> None:
    state = TaskState(MemoryRows(), BUCKETS)
    step = AggregateStep("total", Topic("own", OWN, Plain()), group_of, LISTED)
    came = [(b"011", b"022", b"023", None), (b"-1", b"-2", b"024", b"-3")]
    batch = [
        Arrival(OWN, Record(b"row%d" % row, value, at, (), "t", 0, 0))
        for row, values in enumerate(came)
        for at, value in enumerate(values)
    ]
    told = _parts_at_once(state, step, batch)
    assert [
        (cause, group, *received(Record(group, value, *more)).parts)
        for cause, group, value, *more in told
    ] == [
        (0, b"01", None, b"1", b"row0"),
        (1, b"01", b"1", None, b"row0"),
        (1, b"02", None, b"2", b"row0"),
        (2, b"02", b"2", b"3", b"row0"),
        (3, b"02", b"3", None, b"row0"),
        (6, b"02", None, b"4", b"row1"),
        (7, b"02", b"4", None, b"row1"),
    ]
    counted = {
        verdict: state.numbers[f"total:rows:{verdict}"]
        for verdict in ("taken", "emitted", "ungrouped")
    }
    assert counted == {"taken": 8, "emitted": 6, "ungrouped": 2}


def test_an_aggregate_is_read_and_written_once_for_a_batch() -> None:
    """The last change of a group stands there, at the highest time since the group was empty."""
    state = TaskState(MemoryRows(), BUCKETS)
    step = AggregateStep("old", Topic("own", OWN, Plain()), group_of, LISTED)
    batch = [
        _part(0, b"a", None, b"1", 9),
        _part(1, b"b", None, b"5", 4),
        _part(2, b"a", b"1", b"2", 7),
        _part(3, b"a", None, b"3", 8),
        _part(4, b"b", b"5", None, 2),
        _part(5, b"b", None, b"6", 3),
    ]
    table = FoldedStep(step.name, step).open(state)
    table.send_old(force=True)
    changes = all_changes(table, Arrivals.of(batch)).one_by_one()
    assert [(one.cause, one.key, one.old, one.new, one.timestamp_ms) for one in changes] == [
        (0, b"a", None, b"=1,", 9),
        (1, b"b", None, b"=5,", 4),
        (2, b"a", b"=1,", b"=2,", 9),
        (3, b"a", b"=2,", b"=2,3,", 9),
        (4, b"b", b"=5,", None, 4),
        (5, b"b", None, b"=6,", 3),
    ]
    state.save()
    assert isinstance(table, StoredTable)
    again = FoldedStep(step.name, step).open(TaskState(state.rows, BUCKETS))
    assert [again.latest(key) for key in (b"a", b"b", b"c")] == [
        (b"=2,3,", 9, None),
        (b"=6,", 3, None),
        None,
    ]


@pytest.mark.parametrize(("updates", "written"), [("last", 2), ("each", 6)])
def test_an_aggregate_is_written_where_it_leaves(updates: Updates, written: int) -> None:
    """A group may keep much: all values of a minimum, or of a list."""
    calls: list[str] = []

    def read(stored: bytes) -> list[bytes]:
        calls.append("read")
        return stored.split(b",")

    def write(parts: list[bytes]) -> bytes:
        calls.append("write")
        return b",".join(parts)

    apart = KEPT_APART._replace(form=Form(read, write))
    step = AggregateStep("total", Topic("own", OWN, Plain()), group_of, apart, updates=updates)
    rows = MemoryRows()
    for _ in range(2):
        calls.clear()
        state = TaskState(rows, BUCKETS)
        table = FoldedStep(step.name, step, updates=updates).open(state)
        batch = [_part(at, b"ab"[at % 2 :][:1], None, b"%d" % at, at) for at in range(6)]
        changes = all_changes(table, Arrivals.of(batch))
        state.save()
    assert calls == ["read"] * 2 + ["write"] * written
    assert changes.news.tolist()[-2:] == [b"0,2,4,0,2,4", b"1,3,5,1,3,5"]


@pytest.mark.parametrize("value", [b"poison", b"01unaddable", b"01indelible"])
def test_a_function_that_fails_has_the_place_of_its_arrival(value: bytes) -> None:
    step = AggregateStep("total", Topic("own", OWN, Plain()), group_of, LISTED)
    values = [b"013", b"014", value, b"015", value]
    batch = [
        Arrival(OWN, Record(b"row%d" % (at % 3), each, at, (), "t", 0, at))
        for at, each in enumerate(values)
    ]
    state = TaskState(MemoryRows(), BUCKETS)
    if value == b"poison":
        with pytest.raises(StepFailed) as failed:
            _parts_at_once(state, step, [Arrival(OTHER, batch[0].record), *batch])
        assert failed.value.place == 3
        return
    old, new = (None, value[2:]) if value == b"01unaddable" else (value[2:], None)
    parts = [_part(0, b"01", None, b"1", 0), _part(1, b"01", old, new, 0)]
    (running,) = [open_topology(FoldedStep(step.name, step), state)]
    with pytest.raises(StepFailed) as failed:
        running.process(Arrivals.of([Arrival(OTHER, parts[0].record), *parts, parts[1]]))
    assert failed.value.place == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_group_that_fails_on_rows_is_as_if_each_had_come_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change of a row takes out what stands of it, whatever change failed there."""
    # A table has rows for the most bytes that it had at a save, and the saves differ here.
    monkeypatch.setattr("headrace.spark_jobs.versioned.table_rows.rows_for", lambda _: 0)
    random = chance(seed)
    step = AggregateStep("total", Topic("own", OWN, Plain()), group_of, LISTED)
    batch = parts_in(random, MANY)
    for at in random.sample(range(len(batch)), k=40):
        number, part = batch[at]
        (old, _, row), origin = received(part)
        value = random.choice((b"unaddable", b"indelible"))
        batch[at] = Arrival(number, part._replace(value=sent(origin, old, value, row)))

    def open_over(rows: Any, _: Any) -> OpenTask:
        state = TaskState(rows, BUCKETS)
        return OpenTask(state, open_topology(FoldedStep("total", step), state), None, "", {}, [])

    def taken(pieces: Sequence[Sequence[Arrival]]) -> tuple[list[Row], list[int], dict[str, bytes]]:
        rows, start, told, dead = MemoryRows(), 0, list[Row](), list[int]()
        for piece in pieces:
            for one in in_pieces(Arrivals.of(piece), StepFailed("", max), rows, open_over, {}):
                dead += [start + one.start] if one.failed else []
                told += [
                    (start + one.start + cause, *row)
                    for results in one.results
                    for cause, *row in zip(
                        results.causes.tolist(),
                        results.keys.tolist(),
                        results.values.tolist(),
                        results.times_ms.tolist(),
                        strict=True,
                    )
                ]
            start += len(piece)
        return told, dead, dict(rows)

    alone = taken([[arrival] for arrival in batch])
    assert taken([batch]) == alone
    assert len(alone[1]) > 10
    assert len(alone[0]) > 100


def _part(offset: int, group: bytes, old: bytes | None, new: bytes | None, time_ms: int) -> Arrival:
    origin = Record(b"row", new, time_ms, (), "t", 0, offset)
    return Arrival(-PART, origin._replace(key=group, value=sent(origin, old, new, b"row")))
