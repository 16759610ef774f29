"""Two streams that meet within a window equal their oracle, however each of them is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.arrival import Arrival
from headrace.spark_jobs.versioned.records import Records
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.window_join import Met, WindowJoin
from tests.oracles.versioned import met_within
from tests.versioned.examples import CountedRows

LEFT, RIGHT = 0, 1
FAR_MS = 1 << 50
KEYS = (b"a", b"a", b"b", b"", None)
times_ms = st.one_of(st.integers(0, 40), st.integers(-8, 90), st.just(FAR_MS))
joins = pytest.mark.parametrize("join", ["inner", "left", "outer"])
windows_ms = st.sampled_from((0, 1, 5, 30, 1_000))


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    """Two topics, each in the order of its times."""
    values = st.sampled_from((b"v", b"", None))
    drawn = draw(
        st.lists(st.tuples(st.sampled_from(KEYS), values, times_ms, st.booleans()), max_size=24)
    )
    drawn.sort(key=lambda row: row[2])
    sides: tuple[list[Record], list[Record]] = ([], [])
    for number, (key, value, time_ms, second) in enumerate(drawn):
        # Each value is its own, so that a row says which two records have met.
        named = None if value is None else b"%d" % number + value
        sides[second].append(Record(key, named, time_ms, (), "lr"[second], 0, number))
    return sides


reads = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


def joined(left: bytes | None, right: bytes | None) -> bytes:
    """Write a row so that its sides can be told apart again."""
    return repr((left, right)).encode()


def open_join(
    rows: MemoryRows, join: str, within_ms: int, grace_ms: int = 0
) -> tuple[TaskState, WindowJoin]:
    """Open the join over the state of a task."""
    state = TaskState(rows)
    kind: dict[str, object] = {"join": join}
    return state, WindowJoin(
        state,
        "join",
        (LEFT, RIGHT),
        joiner=joined,
        within_ms=within_ms,
        grace_ms=grace_ms,
        **kind,  # type: ignore[arg-type] # (drawn as text)
    )


def read(
    sides: tuple[list[Record], list[Record]],
    read_in_turn: Sequence[tuple[int, int]],
    join: str,
    within_ms: int,
) -> list[Met]:
    """Read both topics in turn, a micro-batch each; progress is where the slower one is."""
    rows, found = MemoryRows(), []
    unread = [list(side) for side in sides]
    whole = (len(sides[0]), len(sides[1]))
    for counts in [*read_in_turn, whole]:
        batch = [
            Arrival(number, record)
            for number, (side, count) in enumerate(zip(unread, counts, strict=True))
            for record in side[:count]
        ]
        unread = [side[count:] for side, count in zip(unread, counts, strict=True)]
        heads_ms = [side[0].timestamp_ms for side in unread if side]
        state, opened = open_join(rows, join, within_ms)
        assert not opened.process(batch).size, "nothing is late"
        found += opened.advance(min(heads_ms, default=FAR_MS * 2))
        assert opened.balance() == 0
        state.save()
    assert opened.held == 0, "nothing stays that can meet nothing"
    return found


def whole_of(side: list[Record]) -> list[Record]:
    """Return the records that are rows."""
    return [record for record in side if record.value is not None]


def shown(met: Met) -> str:
    """Write a row so that rows without a key can be sorted, too."""
    return repr((met.record.key, met.value, met.time_ms))


@st.composite
def disordered(draw: st.DrawFn, grace_ms: int) -> list[Record]:
    """A topic in which each record is at most the grace behind the highest time before it."""
    steps = st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.integers(0, grace_ms))
    now_ms, found = 0, []
    for number, (key, step_ms, behind_ms) in enumerate(draw(st.lists(steps, max_size=12))):
        now_ms += step_ms
        found.append(Record(key, b"%d" % number, now_ms - behind_ms, (), "t", 0, number))
    return found


@joins
@given(st.data(), st.integers(0, 20), windows_ms, reads)
def test_no_record_within_the_grace_is_late(
    join: str,
    data: st.DataObject,
    grace_ms: int,
    within_ms: int,
    read_in_turn: list[tuple[int, int]],
) -> None:
    lefts, rights = data.draw(disordered(grace_ms)), data.draw(disordered(grace_ms))
    rows, found = MemoryRows(), []
    done, highest_ms = [0, 0], [-1, -1]
    for counts in [*read_in_turn, (len(lefts), len(rights))]:
        batch = []
        for number, side in enumerate((lefts, rights)):
            taken = side[done[number] : done[number] + counts[number]]
            done[number] += len(taken)
            highest_ms[number] = max([highest_ms[number], *(one.timestamp_ms for one in taken)])
            batch += [Arrival(number, record) for record in taken]
        state, opened = open_join(rows, join, within_ms, grace_ms)
        assert not opened.process(batch).size, "nothing is late"
        found += opened.advance(min(highest_ms))
        assert opened.balance() == 0
        state.save()
    _, opened = open_join(rows, join, within_ms, grace_ms)
    found += opened.advance(FAR_MS)
    wanted = [
        (key, joined(left, right), time_ms)
        for key, left, right, time_ms in met_within(lefts, rights, within_ms, join)
    ]
    assert sorted(map(shown, found)) == sorted(repr(row) for row in wanted)


@joins
@example(
    sides=(
        [Record(b"a", b"l", 0, (), "l", 0, 0)],
        [Record(b"a", b"r", 5, (), "r", 0, 0), Record(b"a", b"s", 6, (), "r", 0, 1)],
    ),
    read_in_turn=[(1, 0), (0, 1)],
    within_ms=5,
)
@given(streams(), reads, windows_ms)
def test_rows_are_those_of_complete_streams_in_one_order(
    join: str,
    sides: tuple[list[Record], list[Record]],
    read_in_turn: list[tuple[int, int]],
    within_ms: int,
) -> None:
    found = read(sides, read_in_turn, join, within_ms)
    lefts, rights = map(whole_of, sides)
    wanted = [
        (key, joined(left, right), time_ms)
        for key, left, right, time_ms in met_within(lefts, rights, within_ms, join)
    ]
    assert sorted(map(shown, found)) == sorted(repr(row) for row in wanted)
    assert found == read(sides, [], join, within_ms), "the order does not depend on the cut"


def record(key: bytes, value: bytes, time_ms: int, offset: int = 0) -> Record:
    """Make a record of which the place in its topic rarely matters."""
    return Record(key, value, time_ms, (), "t", 0, offset)


def test_a_late_record_meets_nothing_and_is_told() -> None:
    state, join = open_join(MemoryRows(), "left", 10)
    assert not join.process([Arrival(LEFT, record(b"a", b"l", 100))]).size
    assert join.advance(105) == []
    late = join.process(
        [
            Arrival(RIGHT, record(b"a", b"r", 104)),
            Arrival(LEFT, record(b"a", b"late too", 0, 1)),
            Arrival(RIGHT, record(b"a", b"on time", 105, 2)),
        ]
    )
    assert late.tolist() == [0, 1]
    assert [met.value for met in join.advance(200)] == [joined(b"l", b"on time")]
    assert state.numbers["join:dropped:late"] == 2
    assert join.balance() == 0


def test_progress_never_goes_back_and_a_pair_leaves_once() -> None:
    _, join = open_join(MemoryRows(), "outer", 10)
    join.process([Arrival(LEFT, record(b"a", b"l", 1)), Arrival(RIGHT, record(b"a", b"r", 2))])
    (met,) = join.advance(3)
    assert (met.record.value, met.time_ms) == (b"l", 2)
    assert join.advance(3) == join.advance(1) == join.advance(50) == []
    assert join.held == 0


def test_a_record_alone_leaves_when_its_window_is_over() -> None:
    _, join = open_join(MemoryRows(), "outer", 10)
    join.process([Arrival(LEFT, record(b"a", b"l", 5)), Arrival(RIGHT, record(b"b", b"r", 7))])
    assert join.advance(15) == []
    assert [(met.value, met.time_ms) for met in join.advance(16)] == [(joined(b"l", None), 5)]
    assert [(met.value, met.time_ms) for met in join.advance(18)] == [(joined(None, b"r"), 7)]


def test_a_record_is_late_behind_its_grace() -> None:
    _, join = open_join(MemoryRows(), "inner", 10, grace_ms=50)
    join.advance(100)
    late = join.process(
        [Arrival(LEFT, record(b"a", b"late", 49)), Arrival(LEFT, record(b"a", b"l", 50, 1))]
    )
    assert late.tolist() == [0]
    join.process([Arrival(RIGHT, record(b"a", b"r", 60))])
    assert join.advance(110) == []
    assert [met.value for met in join.advance(111)] == [joined(b"l", b"r")]


def test_a_silent_task_reads_no_record_and_a_silent_key_becomes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bytes | None] = []
    rows = CountedRows()
    for key in (b"a", b"b"):
        state, join = open_join(rows, "inner", 100)
        join.process([Arrival(LEFT, record(key, b"l", 200))])
        state.save()
    assert _advanced(rows, 203) == []
    rows.forget_counts()
    assert _advanced(rows, 210) == []
    assert not {name for name in rows.was_read if name.startswith("join:left-held/2")}

    def counted(records: Records) -> Iterator[Record]:
        found = list(made_of(records))
        made.extend(one.key for one in found)
        return iter(found)

    made_of = Records.__iter__
    monkeypatch.setattr(Records, "__iter__", counted)
    (met,) = _advanced(rows, 300, Arrival(RIGHT, record(b"a", b"r", 250)))
    assert met.value == joined(b"l", b"r")
    assert made == [b"a", b"a"]


def _advanced(rows: CountedRows, progress_ms: int, *batch: Arrival) -> list[Met]:
    """Take a micro-batch of a join whose window is longer than its slices."""
    state, join = open_join(rows, "inner", 100)
    join.process([*batch])
    met = join.advance(progress_ms)
    state.save()
    return met
