"""The stream-table join beyond its scenarios: order, restarts, slices, progress, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.contracts.errors import StateCorrupt, TopologyRefused
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import FilterStep, LookUp, Topic, verify
from headrace.spark_jobs.versioned.grace import ARRIVAL_MAX, Leaving
from headrace.spark_jobs.versioned.layout import decode_held
from headrace.spark_jobs.versioned.records import Records
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import Matches, StreamTableJoin
from headrace.spark_jobs.versioned.tables import (
    Derived,
    Filtered,
    Plain,
    Restored,
    Source,
    Storage,
    Table,
    Versioned,
)
from tests.versioned.examples import FIRST, SECOND, CountedRows, first, record, second


def join_over(
    rows: MemoryRows, storage: Storage | None = None, **options: Any
) -> tuple[TaskState, StreamTableJoin]:
    state = TaskState(rows, 4)
    source = Source(state, "table", FIRST, Versioned(1000) if storage is None else storage)
    return state, StreamTableJoin(state, "join", source, stream=SECOND, join="left", **options)


def values(matches: Matches) -> list[bytes | None]:
    return [each.value for each in matches.records]


def test_a_released_record_is_itself_byte_for_byte() -> None:
    rows = MemoryRows()
    state, join = join_over(rows, grace_ms=10)
    held = Record(b"k", b"v", 5, (("id", None), ("id", b"\x00"), ("ü", b"")), "clicks", 7, None)
    join.process([second(b"k", b"w", 5), first(b"k", b"t", 1), second(b"k", b"x", 3)])
    join.process([second(b"j", b"y", 4)._replace(record=held)])
    state.save()
    _, again = join_over(rows, grace_ms=10)
    matches = again.process([first(b"q", b"q", 2), second(b"k", b"end", 20)])
    assert matches.records[-1] == held
    assert matches.causes.tolist() == [1, 1, 1]
    assert matches.table_values.to_pylist() == [b"t"] * 3


def test_equal_times_leave_by_key_bytes_followed_by_four_bytes_of_arrival() -> None:
    _, join = join_over(MemoryRows(), grace_ms=10)
    keys = [b"b", b"a\x00\x00\x00\x01", b"a", b"a\x00\x00\x00\x09", b"", b"a"]
    join.process([second(key, b"%d" % place, 5) for place, key in enumerate(keys)])
    matches = join.process([second(b"z", b"end", 15)])
    # The third arrival's `a` is followed by 00 00 00 03, the sixth's by 00 00 00 06.
    assert values(matches) == [b"4", b"1", b"2", b"5", b"3", b"0"]


def test_only_records_that_were_on_time_are_counted_as_arrivals() -> None:
    _, join = join_over(MemoryRows(), grace_ms=10)
    join.process([second(b"k", b"first", 50)])
    join.process([second(b"k", b"late", 1), second(b"a\x00\x00\x00\x03", b"y", 45)])
    join.process([second(b"a", b"x", 45), second(b"k", b"late", 1)])
    matches = join.process([second(b"z", b"end", 55)])
    # `a` is followed by 00 00 00 03; with late ones counted it would be 04, and y would be first.
    assert values(matches) == [b"x", b"y"]
    assert join.held.arrivals == 4


def test_the_count_of_arrivals_outgrows_four_bytes() -> None:
    held = [(ARRIVAL_MAX + each, record(b"k", b"v", 5)) for each in range(3)]
    assert leaving_order_of(held) == [0, 1, 2]
    assert leaving_order_of(held[::-1]) == [2, 1, 0]


def leaving_order_of(held: list[tuple[int, Record]]) -> list[int]:
    arrivals = np.array([arrival for arrival, _ in held], np.int64)
    records = Records.of([each for _, each in held])
    leaving = Leaving(np.zeros(len(held), np.int64), arrivals, records)
    order: list[int] = leaving.order(by_progress=False).tolist()
    return order


def test_only_slices_that_gain_or_lose_records_are_touched() -> None:
    rows = CountedRows()
    state, join = join_over(rows, grace_ms=1000)
    join.process([second(b"k", b"v", time_ms) for time_ms in range(0, 1000, 10)])
    state.save()
    rows.forget_counts()
    state, join = join_over(rows, grace_ms=1000)
    matches = join.process([second(b"k", b"v", 1030)])
    state.save()
    assert len(matches.records) == 4
    slices = {name for name in rows.was_read if name.startswith("join:held/")}
    assert slices == {"join:held/slices", "join:held/0"}
    assert rows.was_written == {"header", "join:held/slices", "join:held/0", "join:held/16"}
    assert join.held.count == 97


def test_arrivals_count_on_after_a_restart() -> None:
    rows = MemoryRows()
    state, join = join_over(rows, grace_ms=10)
    join.process([second(b"b", b"1", 5), second(b"a", b"2", 5)])
    state.save()
    _, again = join_over(rows, grace_ms=10)
    again.process([second(b"a", b"3", 5)])
    assert values(again.process([second(b"z", b"end", 15)])) == [b"2", b"3", b"1"]


def test_a_new_grace_cuts_new_slices_once_nothing_is_held() -> None:
    rows = MemoryRows()
    for grace_ms, time_ms, progress_ms, slices in (
        (160, 57, 0, {"5"}),
        (1600, 58, 100, {"5"}),
        (1600, 300, 100, {"2"}),
    ):
        state, join = join_over(rows, Versioned(1600), grace_ms=grace_ms, release="progress")
        join.process([second(b"k", b"v", time_ms)])
        state.save()
        held = {name.removeprefix("join:held/") for name in rows if "held/" in name}
        assert held - {"slices"} == slices
        join.advance(progress_ms, cause=0)
        state.save()


def test_a_slice_that_was_emptied_holds_records_again() -> None:
    state, join = join_over(MemoryRows(), grace_ms=100)
    join.process([second(b"k", b"1", 1)])
    assert values(join.process([second(b"k", b"102", 102), second(b"k", b"4", 4)])) == [b"1"]
    assert values(join.process([second(b"k", b"200", 200)])) == [b"4"]
    state.save()
    assert join.held.count == 2


def test_a_slice_that_was_lost_is_not_passed_over() -> None:
    rows = MemoryRows()
    state, join = join_over(rows, grace_ms=100)
    join.process([second(b"k", b"1", 1)])
    state.save()
    rows.remove("join:held/0")
    _, again = join_over(rows, grace_ms=100)
    with pytest.raises(StateCorrupt, match="join:held/0"):
        again.process([second(b"k", b"102", 102)])


def test_a_shorter_or_longer_grace_finds_what_was_held() -> None:
    for grace_ms in (None, 0, 3, 900):
        rows = MemoryRows()
        state, join = join_over(rows, grace_ms=100)
        join.process([second(b"k", b"%d" % time_ms, time_ms) for time_ms in (50, 10, 90)])
        state.save()
        state, again = join_over(rows, grace_ms=grace_ms)
        matches = again.process([second(b"k", b"end", 1000)])
        assert values(matches)[:3] == [b"10", b"50", b"90"]
        assert again.balance() == 0
        assert again.held.count == (1 if grace_ms else 0)
        assert again.held.bytes == (33 + 1 + 3 + 5 if grace_ms else 0)


def test_without_progress_nothing_is_late_and_all_waits() -> None:
    state, join = join_over(MemoryRows(), release="progress")
    matches = join.process([second(b"k", b"v", time_ms) for time_ms in (-90, 5, 1 << 61)])
    assert list(matches.records) == []
    assert values(join.advance(1 << 62, cause=9)) == [b"v", b"v", b"v"]
    assert join.balance() == 0
    assert state.numbers["join:joined"] == 3


@pytest.mark.parametrize("cut", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_by_progress_equal_times_leave_by_key_and_by_where_they_stand(cut: tuple[int, ...]) -> None:
    standing = [("a", 0, 9), ("a", 1, 2), ("a", 1, 10), ("b", 0, 1)]
    rows = MemoryRows()
    for place in cut:
        state, join = join_over(rows, release="progress")
        topic, partition, offset = standing[place]
        held = Record(b"z" if place else b"zz", b"%d" % place, 5, (), topic, partition, offset)
        join.process([second(b"k", b"", 5)._replace(record=held)])
        state.save()
    assert values(join.advance(6, 0)) == [b"1", b"2", b"3", b"0"]


def test_progress_never_goes_back() -> None:
    _, join = join_over(MemoryRows(), release="progress")
    join.advance(100, cause=0)
    join.process([second(b"k", b"v", 100)])
    assert list(join.advance(50, cause=0).records) == []
    assert list(join.advance(100, cause=0).records) == []
    assert len(join.advance(101, cause=0).records) == 1


def test_by_progress_history_expires_after_what_was_on_time_has_left() -> None:
    _, join = join_over(MemoryRows(), Versioned(10), release="progress")
    join.process([first(b"k", b"t1", 1), first(b"k", b"t5", 5), second(b"k", b"s", 3)])
    assert join.advance(1000, cause=0).table_values.to_pylist() == [b"t1"]
    late = join.process([second(b"k", b"s", 3), second(b"k", b"s", 6), first(b"k", b"t", 989)])
    assert late.table_values.to_pylist() == [None, b"t5"]
    assert join.process([second(b"k", b"s", 995)]).table_values.to_pylist() == [b"t5"]


def test_every_stream_record_has_its_verdict() -> None:
    rows = MemoryRows()
    state = TaskState(rows)
    source = Source(state, "table", FIRST, Versioned(100))
    join = StreamTableJoin(state, "join", source, stream=SECOND, join="inner", grace_ms=5)
    batch = [first(b"k", b"t", 0), second(None, b"v", 1), second(b"k", None, 1)]
    batch += [second(b"k", b"v", 1), second(b"j", b"v", 2), second(b"k", b"w", 10)]
    join.process(batch)
    numbers = {name: count for name, count in state.numbers.items() if name.startswith("join:")}
    assert numbers.pop("join:time_ms") == 10
    assert numbers == {
        "join:taken": 5,
        "join:joined": 1,
        "join:unmatched": 1,
        "join:dropped:null-key": 1,
        "join:dropped:null-value": 1,
    }
    assert join.held.count == 1
    assert join.balance() == 0


@pytest.mark.parametrize("grace_ms", [0, 5])
def test_grace_without_a_versioned_table_is_refused(grace_ms: int) -> None:
    with pytest.raises(TopologyRefused, match=r"`join`.*`table` is not versioned.*retention"):
        join_over(MemoryRows(), Plain(), grace_ms=grace_ms)


def test_release_by_progress_without_a_versioned_table_is_refused() -> None:
    with pytest.raises(TopologyRefused, match="not versioned"):
        join_over(MemoryRows(), Plain(), release="progress")


def test_grace_beyond_retention_is_refused_and_equal_is_not() -> None:
    with pytest.raises(TopologyRefused, match=r"grace of 51 ms.*only 50 ms"):
        join_over(MemoryRows(), Versioned(50), grace_ms=51)
    join_over(MemoryRows(), Versioned(50), grace_ms=50)


def test_grace_hears_of_the_store_that_is_looked_up() -> None:
    state = TaskState(MemoryRows())
    source = Source(state, "table", FIRST, Versioned(100))
    mapped = Derived(state, "map", source, lambda _, value: value, None)
    refused: list[Table] = [
        Filtered(state, "plain", mapped, lambda *_: True, Plain()),
        Filtered(state, "short", mapped, lambda *_: True, Versioned(4)),
        Restored(state, "restored", mapped, None),
    ]
    options: dict[str, Any] = {"stream": SECOND, "join": "inner", "grace_ms": 5}
    for table in refused:
        with pytest.raises(TopologyRefused, match=f"`{table.name}`"):
            StreamTableJoin(state, "join", table, **options)
    StreamTableJoin(state, "join", mapped, **options)


def test_records_that_no_version_can_correct_any_more_are_forgotten() -> None:
    rows = MemoryRows()
    for at_ms in range(0, 20_000, 500):
        state, join = join_over(rows, corrects=True)
        join.process([first(b"k", b"t%d" % at_ms, at_ms), second(b"k", b"s", at_ms)])
        state.save()
    kept = [row for name, row in rows.items() if name.startswith("join:past/")]
    assert sum(len(decode_held(row)) for row in kept) == 3, "those of the last 1,000 ms"


def test_only_a_versioned_table_can_correct() -> None:
    with pytest.raises(TopologyRefused, match="give it a history retention, or join without corr"):
        join_over(MemoryRows(), Plain(), corrects=True)


def test_a_filtered_tables_corrections_are_filtered() -> None:
    state = TaskState(MemoryRows(), 4)
    source = Source(state, "table", FIRST, Versioned(1000))
    table = Filtered(state, "filtered", source, lambda _, value: value != b"hidden", None)
    join = StreamTableJoin(state, "join", table, stream=SECOND, join="left", corrects=True)
    join.process([first(b"k", b"old", 1), second(b"k", b"s", 9)])
    corrections = join.process([first(b"k", b"hidden", 5), first(b"k", b"new", 7)]).corrections
    assert [(each.cause, each.table_value) for each in corrections] == [(0, None), (1, b"new")]


OLD = [
    first(b"k", b"t", 10),
    first(b"k", b"u", 30),
    first(b"gone", b"v", 20),
    first(b"gone", None, 40),
    first(b"other", b"w", 2_000),
]
LATE_LOOKS = [
    second(b"k", b"older than what is remembered", 20),
    second(b"k", b"at the newest version, however old", 30),
    second(b"never heard of", b"and old", 20),
    second(b"gone", b"before it was deleted", 30),
    second(b"gone", b"after it was deleted", 40),
    second(b"k", b"remembered", 1_000),
    second(None, b"nobody's", 20),
]


def test_a_record_older_than_the_history_meets_nothing_and_is_counted() -> None:
    state, join = join_over(MemoryRows())
    matches = join.process([*OLD, *LATE_LOOKS])
    met = dict(zip(values(matches), matches.table_values.to_pylist(), strict=True))
    assert [met[look.record.value] for look in LATE_LOOKS] == [
        *(None, b"u", None, None, None, b"u", None)
    ]
    # The last of them meets a tombstone, which the history may have forgotten.
    assert state.numbers["join:expired"] == 4
    assert list(matches.cold) == []


def test_a_cold_history_is_asked_for_all_that_is_older() -> None:
    state, join = join_over(MemoryRows(), asks_cold=True)
    matches = join.process([*OLD, *LATE_LOOKS])
    assert list(matches.cold) == [look.record for look in LATE_LOOKS[:5]]
    assert matches.cold_causes.tolist() == [5, 6, 7, 8, 9]
    assert sorted(values(matches), key=repr) == [b"nobody's", b"remembered"]
    assert (state.numbers["join:cold"], join.balance()) == (5, 0)


def test_by_progress_a_cold_history_is_asked_too() -> None:
    _, join = join_over(MemoryRows(), release="progress", asks_cold=True)
    join.process([*OLD, LATE_LOOKS[0]])
    join.advance(1_500, 0)
    matches = join.process([LATE_LOOKS[0]])
    assert (list(matches.cold), list(matches.late)) == ([LATE_LOOKS[0].record], [0])


def test_only_a_topics_own_versions_can_be_cold() -> None:
    prices = Topic("prices", FIRST, Versioned(10))
    verify(LookUp("join", prices, stream=SECOND, asks_cold=True))
    for table in (
        FilterStep("cheap", prices, lambda _key, _value: True),
        Topic("latest", FIRST, Plain()),
    ):
        with pytest.raises(TopologyRefused, match=f"`{table.name}` is not a versioned table"):
            verify(LookUp("join", table, stream=SECOND, asks_cold=True))
