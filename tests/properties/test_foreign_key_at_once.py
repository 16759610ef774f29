"""The stages of a foreign-key join take many rows at once as they take them one by one.

Their results and their state are the same wherever a batch is cut, and in whatever order the rows
of other stages come between one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import ANSWER, ASK, ROW
from headrace.spark_jobs.operators.messages import Received, handed_on, received, sent_all
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.running import open_topology
from headrace.spark_jobs.operators.stages import (
    ANSWER_SENT,
    ASK_SENT,
    ROW_SENT,
    AnsweredStep,
    AnswerStep,
    AskStep,
)
from headrace.spark_jobs.operators.topology import FilterStep, ForeignKeyStep, Step, Topic, Topology
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.changes import all_changes
from headrace.spark_jobs.versioned.foreign_key import mark_of
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.layout import (
    decode_numbers,
    decode_subscriptions,
    decode_versions,
)
from headrace.spark_jobs.versioned.records import Records
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import PREFIX
from headrace.spark_jobs.versioned.tables import Plain, Source, Storage, Versioned
from tests.properties.messages import sent
from tests.properties.strategies import chance, seeds
from tests.versioned.taken import run

pytestmark = pytest.mark.usefixtures("no_runs")
"""The states of both are compared, and only a table that takes a batch at once writes runs."""

LEFT, RIGHT = 0, 1
BUCKETS = 2
KINDS = {ASK_SENT: ASK, ROW_SENT: ROW, ANSWER_SENT: ANSWER}
KEYS = (b"p", b"q", b"", None)
VALUES = (b"a1", b"a2", b"b1", b"-", b"", None)
HEADERS = ((), (("n", b"1"),))
storages = st.sampled_from((Plain(), Versioned(5), Versioned(1_000)))
Row = tuple[Any, ...]


def _points_at(_: bytes, value: bytes) -> bytes | None:
    return None if value[:1] == b"-" else value[:1]


def _joined(left: bytes | None, right: bytes | None) -> bytes | None:
    return None if left == b"a2" and right == b"b1" else b"%s+%s" % (left or b"null", right or b"")


def _some(_: bytes, value: bytes) -> bool:
    return value != b"a2"


def _records(random: Random, number: int, keys: Sequence[bytes | None]) -> list[Arrival]:
    return [
        Arrival(
            number,
            Record(
                random.choice(keys),
                random.choice(VALUES),
                random.randrange(-3, 30),
                random.choice(HEADERS),
                "lr"[number],
                0,
                offset,
            ),
        )
        for offset in range(random.randrange(12))
    ]


def _in_pieces(
    topology: Topology, arrivals: Sequence[Arrival], bounds: Sequence[int]
) -> tuple[list[list[Row]], dict[Any, Any]]:
    """Return the rows of each verdict of a batch that is cut there, and the state behind it.

    When a table grows, and forgets what no answer can need, depends on the cuts.
    """
    rows, notes = MemoryRows(), None
    found: dict[str, list[Row]] = {}
    for start, end in pairwise(bounds):
        state = TaskState(rows, BUCKETS, notes)
        for results in open_topology(topology, state).process(Arrivals.of(arrivals[start:end])):
            found.setdefault(results.verdict, []).extend(_rows_of(results, start))
        state.save()
        notes = state.notes
    kept: dict[Any, Any] = {}
    for name, row in rows.items():
        table = name.partition("/")[0]
        kept |= _DECODE[table](row) if table in _DECODE else {}
    numbers = decode_numbers(rows[HEADER])
    kept |= {name: each for name, each in numbers.items() if not name.startswith(PREFIX)}
    return [*found.values()], kept


_DECODE: Mapping[str, Callable[[bytes], Mapping[bytes, Any]]] = {
    "join:left": decode_versions,
    "join:subscribers": decode_subscriptions,
}


def _rows_of(results: Results, first: int) -> list[Row]:
    return [
        (results.verdict, first + cause, key, value, time_ms, *record[3:])
        for cause, key, value, time_ms, record in zip(
            results.causes.tolist(),
            results.keys.tolist(),
            results.values.tolist(),
            results.times_ms.tolist(),
            results.records,
            strict=True,
        )
    ]


def _merged(random: Random, lanes: Sequence[list[Arrival]]) -> list[Arrival]:
    """Put rows in some order in which those of a lane follow each other."""
    turns = [number for number, lane in enumerate(lanes) for _ in lane]
    random.shuffle(turns)
    heads = [iter(lane) for lane in lanes]
    return [next(heads[number]) for number in turns]


def _sent_on(lanes: list[list[Row]]) -> list[list[Arrival]]:
    return [
        [
            Arrival(-KINDS[verdict], Record(key, value, time_ms, *rest))
            for verdict, _, key, value, time_ms, *rest in lane
        ]
        for lane in lanes
    ]


@given(
    seed=seeds,
    left=storages,
    right=storages,
    join=st.sampled_from(("inner", "left")),
    filters=st.booleans(),
)
def test_stages_make_the_same_of_a_batch_wherever_it_is_cut(
    seed: int, left: Storage, right: Storage, join: Literal["inner", "left"], *, filters: bool
) -> None:
    random = chance(seed)
    orders: Step = Topic("orders", LEFT, left)
    customers: Step = Topic("customers", RIGHT, right)
    if filters:
        orders, customers = (
            FilterStep("some", orders, _some),
            FilterStep("few", customers, _some),
        )
    step = ForeignKeyStep("join", orders, customers, _points_at, _joined, join)
    lanes = [_records(random, LEFT, KEYS)]
    more = [_records(random, RIGHT, (b"a", b"b", None))]
    for topology in (
        AskStep("join", orders, step),
        AnswerStep("join", customers),
        AnsweredStep("join", step),
    ):
        arrivals = _merged(random, lanes)
        whole, state = _in_pieces(topology, arrivals, (0, len(arrivals)))
        cut_at = sorted({0, len(arrivals), *random.choices(range(len(arrivals) + 1), k=3)})
        for bounds in (range(len(arrivals) + 1), cut_at):
            if arrivals:
                assert _in_pieces(topology, arrivals, [*bounds]) == (whole, state)
        if not isinstance(topology, AnsweredStep):
            # The rows, which are sent first, go to the stage behind the next one.
            *handed_on, last = _sent_on(whole)
            lanes, more = [last, *more], handed_on


@given(seed=seeds, storage=st.one_of(st.none(), storages), sends_old=st.booleans())
@example(seed=9, storage=Versioned(1_000), sends_old=False)
def test_a_table_takes_records_at_once_as_one_by_one(
    seed: int, storage: Storage | None, *, sends_old: bool
) -> None:
    random = chance(seed)
    batches = [
        _merged(random, [_records(random, number, KEYS) for number in (LEFT, RIGHT)])
        for _ in range(3)
    ]

    def taken(
        take: Callable[[Source, list[Arrival]], list[Any]],
    ) -> tuple[list[list[Any]], MemoryRows]:
        rows = MemoryRows()
        changes = []
        for batch in batches:
            state = TaskState(rows, BUCKETS)
            table = Source(state, "table", LEFT, storage)
            table.send_old(force=sends_old)
            changes.append(take(table, batch))
            state.save()
        return changes, rows

    def at_once(table: Source, batch: list[Arrival]) -> list[Any]:
        # The second half of a batch replaces values of the first one.
        half = len(batch) // 2
        pieces = [Arrivals.of(batch[:half]), Arrivals.of(batch[half:])]
        first, second = (all_changes(table, piece).one_by_one() for piece in pieces)
        return [*first, *(each._replace(cause=half + each.cause) for each in second)]

    assert taken(at_once) == taken(run)


@given(seeds, st.integers(0, 3))
def test_messages_in_columns_are_those_that_are_packed_one_by_one(seed: int, parts: int) -> None:
    random = chance(seed)
    records = [record for _, record in _records(random, LEFT, KEYS)]
    columns = [[random.choice((*VALUES, *KEYS)) for _ in records] for _ in range(parts)]
    rows = [*zip(*columns, strict=True)] or [()] * len(records)
    packed = [sent(record, *row) for record, row in zip(records, rows, strict=True)]
    if parts:
        assert sent_all(Records.of(records), *columns).tolist() == packed
    messages = [record._replace(value=one) for record, one in zip(records, packed, strict=True)]
    assert [received(each) for each in messages] == [
        ([*row], record) for row, record in zip(rows, records, strict=True)
    ]
    if not parts:
        return
    together = Received(Records.of(messages), parts)
    assert together.parts() == columns
    assert list(together.records()) == records
    again = handed_on(together.origins(), *reversed(columns))
    behind = [each._replace(value=one) for each, one in zip(messages, again, strict=True)]
    assert Received(Records.of(behind), parts).parts() == columns[::-1]
    assert list(Received(Records.of(behind), parts).records()) == records


@pytest.mark.parametrize("fails", ["foreign key", "joiner"])
def test_a_function_that_fails_has_the_place_of_its_arrival(fails: str) -> None:
    def points_at(key: bytes, value: bytes) -> bytes | None:
        if fails == "foreign key" and value == b"a2":
            raise ValueError(value)
        return _points_at(key, value)

    def joined(left: bytes | None, right: bytes | None) -> bytes | None:
        if left == b"a2":
            raise ValueError(left)
        return _joined(left, right)

    orders, customers = Topic("orders", LEFT, Plain()), Topic("customers", RIGHT, Plain())
    step = ForeignKeyStep("join", orders, customers, points_at, joined, "inner")
    values = (b"-", None, b"a1", b"a2", b"b1")
    came = [
        Arrival(LEFT, Record(b"p%d" % at, value, at, (), "l", 0, at))
        for at, value in enumerate(values)
    ]
    topology: Topology = AskStep("join", orders, step)
    if fails == "joiner":
        topology = AnsweredStep("join", step)
        rows = [
            Arrival(-ROW, record._replace(value=sent(record, record.value))) for _, record in came
        ]
        answers = [
            Arrival(-ANSWER, record._replace(value=sent(record, mark, b"A")))
            for _, record in came
            for mark in [None if record.value is None else mark_of(record.value)]
        ]
        came = rows + answers
    with pytest.raises(StepFailed) as failed:
        _in_pieces(topology, came, (0, len(came)))
    assert failed.value.place == (3 if fails == "foreign key" else len(values) + 3)
