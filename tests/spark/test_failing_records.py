"""A record on which a step fails is a dead letter, and nothing else is changed by it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.dead_letter import DeadLetter, read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.errors import RecordFailed, StateUnavailable
from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.bundles import ROWS_SCHEMA
from headrace.spark_jobs.operators.columns import PART, RECORD
from headrace.spark_jobs.operators.grouped import FoldedStep
from headrace.spark_jobs.operators.messages import received
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.running import Running, open_topology
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    FilterStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    MapStep,
    ReadAgainStep,
    StreamJoin,
    Topic,
    Topology,
)
from headrace.spark_jobs.shapes import CHANGED, CORRECTED, DEAD, JOINED
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import Aggregation, read_long, sum_of, write_long
from tests.chance import FEWER
from tests.properties.messages import sent

FIRST, SECOND, STREAM = 0, 1, 2
MANY = 3
"""A total that a group must not pass."""


def _computed(_: bytes, value: bytes) -> bytes | None:
    return json.dumps(1 // json.loads(value)).encode()


def _keeps(_: bytes, value: bytes) -> Any:
    return _NoTruth() if value == b"0" else value != b"2"


class _NoTruth:
    def __bool__(self) -> bool:
        raise ValueError


def _joined(left: bytes | None, right: bytes | None) -> Any:
    # An answer that nobody can use, where both are the same.
    return 7 if left == right else b"%s/%s" % (left or b"", right or b"")


def _foreign_key(_: bytes, value: bytes) -> bytes | None:
    return {b"0": b"a", b"1": b"b", b"2": None}[value]


def _group(_: bytes, value: bytes) -> Any:
    return (b"odd" if json.loads(value) % 2 else b"even"), value


def _add(_: bytes, value: bytes, total: bytes) -> bytes:
    after = read_long(total) + json.loads(value)
    if after > MANY:
        raise OverflowError(after)
    return write_long(after)


def _subtract(_: bytes, value: bytes, total: bytes) -> bytes:
    return write_long(read_long(total) - json.loads(value))


PLAIN, VERSIONED = Topic("first", FIRST, Plain()), Topic("first", FIRST, Versioned(10))
OTHER = Topic("second", SECOND, Plain())
TOTAL = Aggregation(lambda: write_long(0), _add, _subtract)
TABLES: dict[str, Topology] = {
    "mapped": MapStep("map", PLAIN, _computed, Plain()),
    "filtered": FilterStep("filter", VERSIONED, _keeps),
    "joined": JoinStep("join", PLAIN, OTHER, _joined, "outer"),
    "joined-computed": JoinStep("join", MapStep("map", PLAIN, _computed), OTHER, _joined, "left"),
    "pointing": ForeignKeyStep("points", PLAIN, OTHER, _foreign_key, _joined, "left"),
    "added-up": AggregateStep("total", PLAIN, _group, TOTAL),
    "read-again": ReadAgainStep("again", AggregateStep("total", VERSIONED, _group, TOTAL), Plain()),
}
LOOK_UPS: dict[str, LookUp] = {
    "at-once": LookUp("met", MapStep("map", VERSIONED, _computed), STREAM, "left"),
    "in-turns": LookUp("met", MapStep("map", PLAIN, _computed, Plain()), STREAM),
    "of-a-join": LookUp("met", JoinStep("join", PLAIN, OTHER, _joined), STREAM),
}
HELD: dict[str, LookUp] = {
    "held": LookUp("met", MapStep("map", VERSIONED, _computed), STREAM, "left", grace_ms=5),
    "corrected": LookUp(
        "met", FilterStep("filter", VERSIONED, _keeps), STREAM, "left", grace_ms=5, corrects=True
    ),
}


class ProgressRow(NamedTuple):
    """A task's results for some records."""

    results: list[tuple[object, ...]]
    dead: list[DeadLetter]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Records of three inputs in some order; some of them poison to some functions."""
    drawn = st.tuples(
        st.sampled_from((FIRST, SECOND, STREAM)),
        st.sampled_from((b"a", b"b")),
        st.sampled_from((b"0", b"1", b"2", None)),
        st.integers(0, 20),
    )
    return [
        Arrival(number, Record(key, value, time_ms, (("n", b"1"),), f"t{number}", 0, offset))
        for offset, (number, key, value, time_ms) in enumerate(draw(st.lists(drawn, max_size=24)))
    ]


cuts = st.lists(st.integers(0, 24), max_size=4)


def told_of(topology: Topology, taken: Sequence[Arrival], cut_at: Sequence[int]) -> ProgressRow:
    """Return the results of batches that end at these places."""
    rows = MemoryRows()
    told = ProgressRow([], [])
    bounds = sorted({0, len(taken), *(cut for cut in cut_at if cut < len(taken))})
    for start, end in pairwise(bounds):
        processor = TaskProcessor(lambda _task: topology, Expected(), {}, {}, buckets=2)
        processor.rows = rows
        frames = processor.handleInputRows((0,), iter([_frame(taken[start:end], start)]), None)
        for row in pd.concat(frames).to_dict("records"):
            _take(row, told)
    return told


def _take(row: dict[str, Any], told: ProgressRow) -> None:
    if row["verdict"] in {JOINED, CHANGED, CORRECTED}:
        names = ("verdict", "key", "value", "table_value", "timestamp_ms", "topic", "offset")
        told.results.append(tuple(None if row[n] is pd.NA else row[n] for n in names))
    elif row["verdict"] == DEAD:
        headers = decode_headers(row["headers"])
        value = None if row["value"] is pd.NA else row["value"]
        time_ms, topic = row["timestamp_ms"], row["topic"]
        letter = read_dead(Record(row["key"], value, time_ms, headers, topic, 0, row["offset"]))
        assert letter is not None
        assert row["reason"] == letter.reason == Reason.FAILED
        told.dead.append(letter)


def _frame(taken: Sequence[Arrival], first: int) -> pd.DataFrame:
    headers = encode_headers((("n", b"1"),))
    columns: dict[str, list[object]] = {name.split()[0]: [] for name in ROWS_SCHEMA.split(", ")}
    columns["arrival"] = []
    for place, (number, record) in enumerate(taken):
        said = {
            **record._asdict(),
            "task": 0,
            "kind": RECORD,
            "input": number,
            "lane": 0,
            "place": record.offset,
            "headers": headers,
            "aside": None,
            "arrival": first + place,
        }
        for name, column in columns.items():
            column.append(said[name])
    return pd.DataFrame(columns)


def _each_alone(taken: Sequence[Arrival]) -> range:
    return range(len(taken))


@pytest.mark.parametrize("topology", [*(TABLES | LOOK_UPS).values()], ids=[*(TABLES | LOOK_UPS)])
@FEWER
@given(arrivals(), cuts)
def test_the_rest_goes_on_as_if_what_failed_had_never_come(
    topology: Topology, taken: list[Arrival], cut_at: list[int]
) -> None:
    told = told_of(topology, taken, cut_at)
    dead = {(letter.record.topic, letter.record.offset) for letter in told.dead}
    assert len(dead) == len(told.dead)
    others = [one for one in taken if (one.record.topic, one.record.offset) not in dead]
    assert told_of(topology, others, []) == ProgressRow(told.results, [])


@pytest.mark.parametrize(
    "topology",
    [*(TABLES | LOOK_UPS | HELD).values()],
    ids=[*(TABLES | LOOK_UPS | HELD)],
)
@FEWER
@given(arrivals(), cuts)
def test_a_records_fate_does_not_depend_on_those_that_came_with_it(
    topology: Topology, taken: list[Arrival], cut_at: list[int]
) -> None:
    alone = told_of(topology, taken, _each_alone(taken))
    together = told_of(topology, taken, cut_at)
    assert sorted(together.results, key=repr) == sorted(alone.results, key=repr)
    assert sorted(together.dead, key=repr) == sorted(alone.dead, key=repr)
    came = {(record.topic, record.offset): record for _, record in taken}
    for letter in alone.dead:
        assert letter.record == came[letter.record.topic, letter.record.offset]


@pytest.mark.long("spark", why="it runs hundreds of failures")
@given(st.lists(st.booleans(), min_size=200, max_size=400))
def test_many_of_many_fail(failing: list[bool]) -> None:
    taken = [
        Arrival(FIRST, Record(b"k%d" % n, b"0" if fails else b"1", n, (), "t0", 0, n))
        for n, fails in enumerate(failing)
    ]
    told = told_of(TABLES["mapped"], taken, [])
    assert [letter.record.offset for letter in told.dead] == [n for n, f in enumerate(failing) if f]
    assert [row[-1] for row in told.results] == [n for n, f in enumerate(failing) if not f]


def test_a_failure_is_told_with_its_step_and_error() -> None:
    (letter,) = told_of(TABLES["mapped"], [_one(b"0")], []).dead
    assert (letter.operator, letter.exception) == ("map", "builtins.ZeroDivisionError")
    assert letter.detail.startswith("`_computed` raised ZeroDivisionError: ")
    assert "in _computed" in letter.stacktrace
    assert letter.record == _one(b"0").record


def test_a_row_of_two_streams_that_fails_is_a_dead_letter_of_its_record() -> None:
    def joiner(left: bytes | None, right: bytes | None) -> bytes:
        return b"%d" % (int(left or b"1") // int(right or b"1"))

    state = TaskState(MemoryRows())
    running = open_topology(StreamJoin("met", (FIRST, SECOND), joiner, 5, "outer"), state)
    came = [(FIRST, b"6", 1), (FIRST, b"8", 2), (SECOND, b"0", 3), (SECOND, b"2", 4)]
    taken = [
        Arrival(number, Record(b"a", value, time_ms, (), f"t{number}", 0, time_ms))
        for number, value, time_ms in came
    ]
    running.process(Arrivals.of(taken))
    (results,) = running.advance(100)
    assert [*results.values] == [b"3", b"4"]  # noqa: PD011 (no frame of pandas)
    failed = running.failed()
    assert [record for record, _ in failed] == [taken[0].record, taken[1].record]
    assert [type(error.__cause__) for _, error in failed] == [ZeroDivisionError] * 2
    assert running.failed() == []
    assert [*running.balances().values(), running.held()] == [0, 0]


def test_a_step_that_fails_by_itself_is_found_in_smaller_pieces() -> None:
    taken = [_one(b"1")._replace(record=_one(b"1").record._replace(offset=n)) for n in range(50)]
    told = told_of(_Broken(), taken, [])
    assert [one.record.offset for one in told.dead] == [7, 31]
    assert {one.operator for one in told.dead} == {"broken"}


def test_a_job_that_is_to_stop_says_at_which_record() -> None:
    processor = TaskProcessor(lambda _task: TABLES["mapped"], Expected(), {}, {}, stops=True)
    processor.rows = MemoryRows()
    frames = processor.handleInputRows((0,), iter([_frame([_one(b"1"), _one(b"0")], 0)]), None)
    with pytest.raises(RecordFailed, match=r"in the step `map`, at t0/0 offset 0; mend it, or"):
        list(frames)


def test_no_record_is_to_blame_for_a_store_that_does_not_answer() -> None:
    class Silent(MemoryRows):
        def get(self, name: str, default: Any = None) -> Any:
            if "first" in name:
                raise StateUnavailable
            return super().get(name, default)

    processor = TaskProcessor(lambda _task: TABLES["mapped"], Expected(), {}, {})
    processor.rows = Silent()
    with pytest.raises(StateUnavailable):
        list(processor.handleInputRows((0,), iter([_frame([_one(b"1")], 0)]), None))


def test_a_group_takes_out_what_stands_there_and_not_what_failed() -> None:
    """Rows live in other tasks, which know nothing of what failed here."""
    rows = MemoryRows()
    step = FoldedStep("total", AggregateStep("total", PLAIN, _group, TOTAL))

    def fold(row: bytes, old: bytes | None, new: bytes | None, *, fails: bool = False) -> int:
        state = TaskState(rows)
        table = step.open(state)
        origin = Record(row, new, 5, (), "t0", 0, 1)
        part = origin._replace(key=b"odd", value=sent(origin, old, new, row))
        if fails:
            state.forgo(Arrival(-PART, part))
        else:
            table.take(0, Arrival(-PART, part))
        state.save()
        found = table.latest(b"odd")
        return 0 if found is None else read_long(found.value)

    assert fold(b"a", None, b"1") == 1
    assert fold(b"b", None, b"9", fails=True) == 1
    # Its 9 was never added, and then what stands of `a` is kept, whatever is said of it.
    assert fold(b"b", b"9", b"2") == 3
    assert fold(b"a", b"1", b"5", fails=True) == 3
    assert fold(b"a", b"5", None, fails=True) == 3
    assert fold(b"a", None, b"0") == 2
    assert fold(b"b", b"2", None) == 0
    state = TaskState(rows)
    assert state.numbers["total:forgone"] == 0


def test_a_message_says_the_record_that_caused_it() -> None:
    origin = Record(b"key", None, (1 << 62) + 1, (("n", b"1"),), "t0", 3, 4)
    row = origin._replace(key=b"k", value=sent(origin, b"long", None, b"long", b""), timestamp_ms=9)
    assert received(row) == ([b"long", None, b"long", b""], origin)
    for own in (origin, origin._replace(key=None, value=b""), origin._replace(value=b"long")):
        assert received(row._replace(value=sent(own, b"long"))) == ([b"long"], own)


def test_sums_that_64_bits_do_not_hold_fail() -> None:
    topology = AggregateStep("total", PLAIN, lambda _, value: (b"g", value), sum_of(int))
    values = (b"%d" % (2**63 - 2), b"1", b"1")
    taken = [
        Arrival(FIRST, Record(b"%d" % n, value, 1, (), "t0", 0, n))
        for n, value in enumerate(values)
    ]
    told = told_of(topology, taken, [])
    assert [letter.record.offset for letter in told.dead] == [2]
    assert told.results[-1][2] == write_long(2**63 - 1)


def _one(value: bytes) -> Arrival:
    return Arrival(FIRST, Record(b"a", value, 1, (("n", b"1"),), "t0", 0, 0))


class _Broken:
    """A stage with a mistake in it."""

    name = "broken"

    def open(self, _state: TaskState) -> Running:
        return _OpenedBroken()


class _OpenedBroken(Running):
    def process(self, arrivals: Arrivals) -> list[Results]:
        if any(record.offset in {7, 31} for _, record in arrivals):
            raise IndexError
        return []
