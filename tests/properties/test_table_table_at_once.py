"""A table-table join takes a batch at once as it takes it one by one, and as the rules say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import ANSWER, ROW
from headrace.spark_jobs.operators.stages import AnsweredStep
from headrace.spark_jobs.operators.topology import ForeignKeyStep, JoinStep, MapStep, Step, Topic
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.changes import AtOnce, Change, all_changes, one_by_one
from headrace.spark_jobs.versioned.foreign_key import mark_of
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.tables import Plain, Storage, Table, Versioned
from tests.oracles.versioned import History, Joined, Plainly, joined_tables
from tests.properties.messages import sent
from tests.properties.strategies import chance, seeds
from tests.versioned.taken import run

pytestmark = pytest.mark.usefixtures("no_runs")
"""The states of both are compared, and only a table that takes a batch at once writes runs."""

LEFT, RIGHT, OTHER = 0, 1, 2
BUCKETS = 2
VALUES = (b"1", b"2", b"3", b"", None, None)
HEADERS = ((), (("n", b"1"),))
SPAN_MS = 40
STORAGES = (None, Plain(), Versioned(0), Versioned(6), Versioned(1_000))
JOINS: tuple[Literal["inner", "left", "outer"], ...] = ("inner", "left", "outer")
storages = st.sampled_from(STORAGES)
Take = Callable[[Table, list[Arrival]], Sequence[Change]]


def _joined(left: bytes | None, right: bytes | None) -> bytes | None:
    if left == b"3" and right in (b"3", None):
        return None
    return b"%s+%s" % (b"null" if left is None else left, b"null" if right is None else right)


def _records(
    random: Random, count: int, keys: Sequence[bytes | None], inputs: Sequence[int]
) -> list[Arrival]:
    """Records whose times advance, so that retention ends for some, and are often equal."""
    return [
        Arrival(
            random.choice(inputs),
            Record(
                random.choice(keys),
                random.choice(VALUES),
                max(0, offset * SPAN_MS // count + random.randrange(-8, 4)),
                random.choice(HEADERS),
                "topic",
                0,
                offset,
            ),
        )
        for offset in range(count)
    ]


def _at_once(table: Table, batch: list[Arrival]) -> Sequence[Change]:
    assert isinstance(table, AtOnce)
    return all_changes(table, Arrivals.of(batch)).one_by_one()


def _taken(
    step: Step, batches: Sequence[list[Arrival]], take: Take, *, sends_old: bool
) -> tuple[list[Change], MemoryRows]:
    """Return all changes of batches with a restart behind each of them, and the state."""
    rows, changes, first = MemoryRows(), list[Change](), 0
    for batch in batches:
        state = TaskState(rows, BUCKETS)
        table = step.open(state)
        if sends_old:
            assert table.send_old(force=True)
        made = take(table, batch)
        state.save()
        assert state.balance("join") == 0
        changes += [each._replace(cause=first + each.cause) for each in made]
        first += len(batch)
    return changes, rows


def _naive(storage: Storage | None) -> History | Plainly:
    return History(storage.retention_ms) if isinstance(storage, Versioned) else Plainly()


def _cut(random: Random, arrivals: list[Arrival], count: int) -> list[list[Arrival]]:
    bounds = sorted(random.choices(range(len(arrivals) + 1), k=count - 1))
    return [
        arrivals[start:end]
        for start, end in zip([0, *bounds], [*bounds, len(arrivals)], strict=True)
    ]


def _check(step: JoinStep, arrivals: list[Arrival], random: Random, *, sends_old: bool) -> None:
    """Compare with one by one, state and all, and with the rules."""
    left, right = step.left, step.right
    assert isinstance(left, Topic)
    assert isinstance(right, Topic)
    batches = _cut(random, arrivals, 3)
    changes, rows = _taken(step, batches, _at_once, sends_old=sends_old)
    assert (changes, rows) == _taken(step, batches, run, sends_old=sends_old)
    found = [Joined(*each[:5]) for each in changes]
    assert [each.record for each in changes] == [arrivals[each.cause].record for each in found]
    tables = _naive(left.storage), _naive(right.storage)
    want = joined_tables(arrivals, (left.input, right.input), tables, _joined, step.join)
    assert found == [each if sends_old else each._replace(old=None) for each in want]


@given(
    seed=seeds,
    left=storages,
    right=storages,
    join=st.sampled_from(JOINS),
    right_input=st.sampled_from((LEFT, RIGHT, RIGHT, RIGHT)),
    sends_old=st.booleans(),
)
def test_a_join_takes_a_batch_at_once_as_one_by_one(
    seed: int,
    left: Storage | None,
    right: Storage | None,
    join: Literal["inner", "left", "outer"],
    right_input: int,
    *,
    sends_old: bool,
) -> None:
    random = chance(seed)
    keys = (b"a", b"a", b"b", b"", None)
    arrivals = _records(random, random.randrange(40), keys, (LEFT, RIGHT, RIGHT, OTHER))
    step = JoinStep(
        "join", Topic("left", LEFT, left), Topic("right", right_input, right), _joined, join
    )
    _check(step, arrivals, random, sends_old=sends_old)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("storage", STORAGES)
def test_many_keys_meet_at_once_as_one_by_one(
    storage: Storage | None, join: Literal["inner", "left", "outer"]
) -> None:
    keys = [None, *(b"key %d" % number for number in range(90))]
    for seed, other in enumerate(STORAGES):
        random = chance(seed)
        arrivals = _records(random, 700, keys, (LEFT, LEFT, RIGHT))
        step = JoinStep(
            "join", Topic("left", LEFT, storage), Topic("right", RIGHT, other), _joined, join
        )
        for sends_old in (False, True):
            _check(step, arrivals, random, sends_old=sends_old)


def test_a_table_joins_itself_at_once_as_one_by_one() -> None:
    for seed, storage in enumerate(STORAGES):
        random = chance(seed)
        arrivals = _records(random, 300, [b"key %d" % number for number in range(30)], (LEFT,))
        step = JoinStep(
            "join", Topic("left", LEFT, storage), Topic("right", LEFT, storage), _joined, "outer"
        )
        _check(step, arrivals, random, sends_old=True)


def _mapped(_: bytes, value: bytes) -> bytes | None:
    return None if value == b"2" else value + b"!"


@pytest.mark.parametrize("join", JOINS)
def test_sides_that_take_records_one_by_one_alone_are_taken_so(
    join: Literal["inner", "left", "outer"],
) -> None:
    left, right = Topic("left", LEFT, Versioned(6)), Topic("right", RIGHT)
    sides: tuple[tuple[Step, Step], ...] = (
        (MapStep("mapped", left, _mapped), right),
        (left, MapStep("mapped", right, _mapped, Plain())),
        (JoinStep("inner", left, right, _joined, join), Topic("other", OTHER, Plain())),
    )
    for seed, (first, second) in enumerate(sides):
        random = chance(seed)
        keys = [b"key %d" % number for number in range(30)]
        batches = _cut(random, _records(random, 300, keys, (LEFT, RIGHT, OTHER)), 3)
        step = JoinStep("join", first, second, _joined, join)
        at_once = _taken(step, batches, _at_once, sends_old=True)
        assert at_once == _taken(step, batches, run, sends_old=True)


def _points_at(_: bytes, value: bytes) -> bytes | None:
    return value[:1]


def _messages(random: Random, number: int, record: Record) -> Arrival:
    """Turn a record of the left side into a row or an answer; others stay as they are."""
    if number != LEFT or record.key is None:
        return Arrival(number, record)
    if random.random() < 0.3:
        return Arrival(-ROW, record._replace(value=sent(record, record.value)))
    mark = None if record.value is None else mark_of(record.value)
    foreign_value = random.choice(VALUES)
    return Arrival(-ANSWER, record._replace(value=sent(record, mark, foreign_value)))


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("storage", STORAGES)
def test_answers_of_a_foreign_key_join_meet_at_once_as_one_by_one(
    storage: Storage | None, join: Literal["inner", "left", "outer"]
) -> None:
    orders, customers = Topic("orders", LEFT, Plain()), Topic("customers", OTHER, Plain())
    foreign = ForeignKeyStep("points", orders, customers, _points_at, _joined, "left")
    answered = AnsweredStep("points", foreign)
    for seed, is_left in enumerate((True, False)):
        random = chance(seed)
        keys = [None, *(b"key %d" % number for number in range(30))]
        records = _records(random, 400, keys, (LEFT, LEFT, LEFT, RIGHT))
        batches = _cut(random, [_messages(random, *each) for each in records], 3)
        other = Topic("right", RIGHT, storage)
        left, right = (answered, other) if is_left else (other, answered)
        step = JoinStep("join", left, right, _joined, join)
        at_once = _taken(step, batches, _at_once, sends_old=True)
        assert at_once == _taken(step, batches, run, sends_old=True)
        assert at_once[0]


@pytest.mark.parametrize("sends_old", [False, True])
def test_the_error_of_a_joiner_has_the_place_of_its_arrival(*, sends_old: bool) -> None:
    def joined(left: bytes | None, right: bytes | None) -> Any:
        return 1 if (left, right) == (b"2", b"3") else _joined(left, right)

    step = JoinStep("join", Topic("left", LEFT), Topic("right", RIGHT), joined, "outer")
    places = set()
    for seed in range(20):
        keys = [None, *(b"key %d" % number for number in range(20))]
        arrivals = Arrivals.of(_records(chance(seed), 700, keys, (LEFT, RIGHT)))
        failed_at = []
        for take in (all_changes, one_by_one):
            table = step.open(TaskState(MemoryRows(), BUCKETS))
            if sends_old:
                table.send_old(force=True)
            with pytest.raises(StepFailed) as failed:
                take(table, arrivals)
            failed_at.append(failed.value.place)
        assert failed_at[0] == failed_at[1]
        places.add(failed_at[0])
    assert len(places) > 5
