"""Versioned tables and joins equal their oracles, wherever batches are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.aggregation import Aggregated
from headrace.spark_jobs.versioned.arrival import Arrival, merge
from headrace.spark_jobs.versioned.changes import Change
from headrace.spark_jobs.versioned.foreign_key import ForeignKeyJoin
from headrace.spark_jobs.versioned.history import VersionedStore
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import StreamTableJoin
from headrace.spark_jobs.versioned.table_table import TableTableJoin
from headrace.spark_jobs.versioned.tables import (
    Plain,
    Source,
    Storage,
    Table,
    Versioned,
)
from headrace.spark_jobs.versioned.totals import count, read_long
from tests.oracles.versioned import (
    Arrived,
    History,
    corrected,
    joined_on_time,
    latest_rows,
    stream_table,
)
from tests.properties.strategies import MORE
from tests.versioned.taken import run

BUCKETS = 2
TABLE, STREAM = 0, 1
KEYS = (b"a", b"a", b"a\x00\x00\x00\x01", b"b", b"", None)
VALUES = (b"g:1", b"g:2", b"h:1", b"plain", b"", None)
FAR_MS = 1 << 50

times_ms = st.one_of(st.integers(0, 40), st.integers(-8, 90), st.just(FAR_MS))
retentions_ms = st.sampled_from((0, 5, 20, 1000))


@st.composite
def arrivals(
    draw: st.DrawFn,
    *,
    size_min: int = 0,
    size_max: int = 30,
    times: st.SearchStrategy[int] = times_ms,
) -> list[Arrival]:
    """Records of two inputs in some order."""
    drawn = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES), times, st.booleans())
    return [
        Arrival(int(second), Record(key, value, time_ms, (), "ts"[second], 0, offset))
        for offset, (key, value, time_ms, second) in enumerate(
            draw(st.lists(drawn, min_size=size_min, max_size=size_max))
        )
    ]


cuts = st.lists(st.integers(0, 30), max_size=6)


def in_batches(
    given_arrivals: Sequence[Arrival],
    cut_at: list[int],
    take: Callable[[TaskState, Sequence[Arrival], int], list[Any]],
) -> list[Any]:
    """Return the results of all batches; each opens the rows that the one before wrote anew."""
    rows = MemoryRows()
    outputs: list[Any] = []
    bounds = sorted({0, len(given_arrivals), *(cut for cut in cut_at if cut < len(given_arrivals))})
    for start, end in pairwise(bounds):
        state = TaskState(rows, BUCKETS)
        outputs += take(state, given_arrivals[start:end], start)
        state.save()
    return outputs


@given(arrivals(), cuts, retentions_ms)
def test_a_store_answers_as_if_it_never_forgot(
    calls: list[Arrival], cut_at: list[int], retention_ms: int
) -> None:
    oracle = History(retention_ms)

    def take(state: TaskState, batch: Sequence[Arrival], _: int) -> list[tuple[Any, Any]]:
        store = VersionedStore(state, "store", retention_ms)
        answers: list[tuple[Any, Any]] = []
        for deletes, record in batch:
            known, value, time_ms = record.key or b"", record.value, record.timestamp_ms
            if deletes and value is None:
                answers.append((store.delete(known, time_ms), oracle.delete(known, time_ms)))
            else:
                put = (store.put(known, value, time_ms), oracle.put(known, value, time_ms))
                answers.append(put)
            asked_ms = (time_ms - 3, time_ms, time_ms + 7, oracle.time_ms - retention_ms)
            for at_ms in asked_ms:
                asked = record._replace(key=known, timestamp_ms=at_ms)
                told = oracle.as_of(known, at_ms)
                answers.append((store.as_of(known, at_ms), told))
                answers.append((store.values_as_of([asked]), [told and told[0]]))
            version = store.latest(known)
            answers.append((version and version[:2], oracle.latest(known)))
        return answers

    for got, wanted in in_batches(calls, cut_at, take):
        assert got == wanted


def joined_to_versions(state: TaskState, retention_ms: int, **options: Any) -> StreamTableJoin:
    table = Source(state, "table", TABLE, Versioned(retention_ms))
    return StreamTableJoin(state, "join", table, stream=STREAM, **options)


@given(arrivals(), cuts, st.sampled_from((None, 0, 1, 5, 20)), st.sampled_from(("inner", "left")))
def test_the_stream_table_join_equals_its_oracle(
    both: list[Arrival], cut_at: list[int], grace_ms: int | None, join_kind: Any
) -> None:
    retention_ms = 25
    left = join_kind == "left"
    arrived = [Arrived(number == TABLE, record) for number, record in both]
    joined, waiting = stream_table(arrived, left=left, grace_ms=grace_ms, retention_ms=retention_ms)
    held: list[tuple[int, int]] = [(0, 0)]

    def take(state: TaskState, batch: Sequence[Arrival], start: int) -> list[Any]:
        join = joined_to_versions(state, retention_ms, join=join_kind, grace_ms=grace_ms)
        outputs: list[Any] = []
        half = len(batch) // 2
        # The same objects take the second half: a batch may also come in pieces.
        for begin, piece in ((start, batch[:half]), (start + half, batch[half:])):
            matches = join.process(piece)
            assert join.balance() == 0
            causes = [begin + cause for cause in matches.causes]
            outputs += zip(causes, matches.records, matches.table_values.to_pylist(), strict=True)
        held.append((join.held.count, join.held.bytes))
        return outputs

    assert in_batches(both, cut_at, take) == joined
    weight = sum(33 + len(each.key or b"") + len(each.value or b"") + 1 for each in waiting)
    assert held[-1] == (len(waiting), weight)


@given(arrivals(), cuts, st.sampled_from((None, 0, 5)))
def test_cold_is_who_is_older_than_the_tables_history_and_nobody_else(
    both: list[Arrival], cut_at: list[int], grace_ms: int | None
) -> None:
    retention_ms = 10
    arrived = [Arrived(number == TABLE, record) for number, record in both]
    joined, _ = stream_table(arrived, left=True, grace_ms=grace_ms, retention_ms=retention_ms)
    cold: list[tuple[int, Record]] = []

    def take(state: TaskState, batch: Sequence[Arrival], start: int) -> list[Any]:
        options = {"join": "left", "grace_ms": grace_ms, "asks_cold": True}
        join = joined_to_versions(state, retention_ms, **options)
        matches = join.process(batch)
        assert join.balance() == 0
        causes = [start + cause for cause in matches.cold_causes]
        cold.extend(zip(causes, matches.cold, strict=True))
        causes = [start + cause for cause in matches.causes]
        return list(zip(causes, matches.records, matches.table_values.to_pylist(), strict=True))

    def is_old(cause: int, record: Record) -> bool:
        table = [each for is_table, each in arrived[:cause] if is_table and each.key is not None]
        newest_ms = max((each.timestamp_ms for each in table), default=0)
        return record.key is not None and record.timestamp_ms < newest_ms - retention_ms

    found = in_batches(both, cut_at, take)
    assert found == [row for row in joined if not is_old(*row[:2])]
    assert cold == [row[:2] for row in joined if is_old(*row[:2])]


near = arrivals(size_min=10, times=st.integers(0, 9))
"""Many versions before a record, at its time, and just within retention."""


@MORE
@given(near, cuts, st.sampled_from((None, 0, 2)), st.sampled_from(("inner", "left")))
def test_corrections_equal_their_oracle(
    both: list[Arrival], cut_at: list[int], grace_ms: int | None, join_kind: Any
) -> None:
    retention_ms = 4
    arrived = [Arrived(number == TABLE, record) for number, record in both]

    def take(state: TaskState, batch: Sequence[Arrival], start: int) -> list[Any]:
        options = {"join": join_kind, "grace_ms": grace_ms, "corrects": True}
        join = joined_to_versions(state, retention_ms, **options)
        matches = join.process(batch)
        assert join.balance() == 0
        return [each._replace(cause=start + each.cause) for each in matches.corrections]

    found = in_batches(both, cut_at, take)
    assert found == corrected(arrived, grace_ms=grace_ms, retention_ms=retention_ms)


@given(arrivals(), cuts)
def test_with_corrections_the_last_word_is_right(both: list[Arrival], cut_at: list[int]) -> None:
    """The last row of a record is as if it had waited for the whole table."""
    last: dict[Record, bytes | None] = {}

    def take(state: TaskState, batch: Sequence[Arrival], _: int) -> list[Any]:
        source = Source(state, "table", TABLE, Versioned(2 * FAR_MS))
        join = StreamTableJoin(state, "join", source, stream=STREAM, join="left", corrects=True)
        matches = join.process(batch)
        last.update(zip(matches.records, matches.table_values.to_pylist(), strict=True))
        last.update((record, value) for _, record, value in matches.corrections)
        return []

    in_batches(both, cut_at, take)
    table = [record for number, record in both if number == TABLE]
    assert last == {
        record: None if record.key is None else joined_on_time(table, record)
        for number, record in both
        if number == STREAM and record.value is not None
    }


reads = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


@given(arrivals(), reads)
def test_by_progress_it_does_not_matter_how_far_each_input_was_read(
    both: list[Arrival], read_in_turn: list[tuple[int, int]]
) -> None:
    """Two readers of the same topics agree on all records, however each of them reads."""
    whole = [arrival for arrival in both if arrival.record.key is not None]
    whole.sort(key=lambda arrival: arrival.record.timestamp_ms)
    table = [record for number, record in whole if number == TABLE]
    stream = [record for number, record in whole if number == STREAM and record.value is not None]
    rows = MemoryRows()
    got: list[tuple[Record, bytes | None]] = []
    unread = [table, stream]
    for counts in [*read_in_turn, (len(table), len(stream))]:
        batch = merge([each[:count] for each, count in zip(unread, counts, strict=True)])
        unread = [each[count:] for each, count in zip(unread, counts, strict=True)]
        heads_ms = [each[0].timestamp_ms for each in unread if each]
        state = TaskState(rows, BUCKETS)
        source = Source(state, "table", TABLE, Versioned(30))
        join = StreamTableJoin(
            state, "join", source, stream=STREAM, join="left", release="progress"
        )
        for found in (join.process(batch), join.advance(min(heads_ms, default=1 << 60), cause=0)):
            got += zip(found.records, found.table_values.to_pylist(), strict=True)
        assert join.balance() == 0
        state.save()
    met = {record: joined_on_time(table, record) for record in stream}
    assert dict(got) == met
    assert len(got) == len(met)
    times = [record.timestamp_ms for record, _ in got]
    assert times == sorted(times)


def in_table(
    both: list[Arrival], cut_at: list[int], build: Callable[[TaskState], Table]
) -> list[Change]:
    """Return the changes of a table, batch by batch."""

    def take(state: TaskState, batch: Sequence[Arrival], start: int) -> list[Change]:
        changes = run(build(state), batch)
        state.save()
        steps = {name.removesuffix(":taken") for name in state.numbers if name.endswith(":taken")}
        assert {step: state.balance(step) for step in steps} == dict.fromkeys(steps, 0)
        return [change._replace(cause=start + change.cause) for change in changes]

    return in_batches(both, cut_at, take)


def joined_values(left: bytes | None, right: bytes | None) -> bytes:
    """Both, with a mark for what is missing."""
    return b"%s+%s" % (b"-" if left is None else left, b"-" if right is None else right)


storages = st.sampled_from((Plain(), Versioned(12), Versioned(1000)))


def rows_after(
    both: list[Arrival], number: int, storage: Storage, until: int
) -> dict[bytes, bytes]:
    """A side's table after so many arrivals, recomputed from scratch."""
    retention_ms = storage.retention_ms if isinstance(storage, Versioned) else None
    return latest_rows([each for side, each in both[:until] if side == number], retention_ms)


def believed(changes: list[Change], until: int) -> dict[bytes, bytes]:
    """Return the table that a reader of the results has after so many arrivals."""
    table = {change.key: change.new for change in changes if change.cause < until}
    return {key: value for key, value in table.items() if value is not None}


def foreign_key(_: bytes, value: bytes) -> bytes | None:
    """Return `a` for a value that begins with `g:`, `b` for one with `h:`."""
    return b"a" if value.startswith(b"g:") else b"b" if value.startswith(b"h:") else None


@given(arrivals(), cuts, storages, storages)
@pytest.mark.parametrize("join", ["inner", "left", "outer"])
def test_results_by_primary_key_are_the_join_of_both_tables(
    join: Any, both: list[Arrival], cut_at: list[int], left: Storage, right: Storage
) -> None:
    def build(state: TaskState) -> Table:
        sides = (Source(state, "left", 0, left), Source(state, "right", 1, right))
        return TableTableJoin(state, "join", *sides, joiner=joined_values, join=join)

    changes = in_table(both, cut_at, build)
    for until in range(1, len(both) + 1):
        lefts, rights = rows_after(both, 0, left, until), rows_after(both, 1, right, until)
        keys = lefts.keys() & rights.keys() if join == "inner" else lefts.keys()
        keys = lefts.keys() | rights.keys() if join == "outer" else keys
        want = {key: joined_values(lefts.get(key), rights.get(key)) for key in keys}
        assert believed(changes, until) == want


@given(arrivals(), cuts, storages, storages)
@pytest.mark.parametrize("join", ["inner", "left"])
def test_results_by_foreign_key_are_the_join_of_both_tables(
    join: Any, both: list[Arrival], cut_at: list[int], left: Storage, right: Storage
) -> None:
    def build(state: TaskState) -> Table:
        sides = (Source(state, "left", 0, left), Source(state, "right", 1, right))
        return ForeignKeyJoin(
            state, "join", *sides, foreign_key_of=foreign_key, joiner=joined_values, join=join
        )

    changes = in_table(both, cut_at, build)
    for until in range(1, len(both) + 1):
        lefts, rights = rows_after(both, 0, left, until), rows_after(both, 1, right, until)
        met = {key: rights.get(foreign_key(key, value) or b"?") for key, value in lefts.items()}
        want = {
            key: joined_values(value, met[key])
            for key, value in lefts.items()
            if join == "left" or met[key] is not None
        }
        assert believed(changes, until) == want


@given(arrivals(), cuts, storages)
def test_an_aggregate_is_that_of_its_rows(
    both: list[Arrival], cut_at: list[int], storage: Storage
) -> None:
    def regroup(key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        group = foreign_key(key, value)
        return None if group is None else (group, value)

    def build(state: TaskState) -> Table:
        return Aggregated(state, "count", Source(state, "table", 0, storage), regroup, count())

    changes = in_table(both, cut_at, build)
    for until in range(1, len(both) + 1):
        groups = [foreign_key(*row) for row in rows_after(both, 0, storage, until).items()]
        totals = {group: read_long(packed) for group, packed in believed(changes, until).items()}
        want = {group: groups.count(group) for group in (b"a", b"b")}
        assert {group: totals.get(group, 0) for group in want} == want


@given(arrivals())
def test_merging_keeps_each_input_in_order_and_takes_the_lower_head(both: list[Arrival]) -> None:
    inputs = [[record for number, record in both if number == each] for each in (TABLE, STREAM)]
    merged = merge(inputs)
    for each in (TABLE, STREAM):
        assert [record for number, record in merged if number == each] == inputs[each]
    for (number, record), following in pairwise(merged):
        if following.input < number:
            assert record.timestamp_ms < following.record.timestamp_ms
        if following.input > number:
            assert record.timestamp_ms <= following.record.timestamp_ms
