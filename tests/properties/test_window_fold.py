"""Windows of a stream equal their oracle, however the stream is read and wherever it stops."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.queries.aggregates import Folded as Fold
from headrace.spark_jobs.queries.aggregates import Folds, Kind, Regrouped
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.window_fold import Closed, WindowFold, time_text
from tests.oracles.windows import Folded, Payment, folded

FAR_MS = 1 << 50
KINDS: tuple[Kind, ...] = ("count", "sum", "min", "max", "collect")
FOLDS = Folds(1, tuple(Fold(kind, "number", counts_rows=kind == "count") for kind in KINDS))
REGROUPED = Regrouped((("account",),), tuple(None if k == "count" else ("cents",) for k in KINDS))
payments = st.builds(
    Payment,
    st.sampled_from(("ann", "bob", "")),
    st.none() | st.integers(-3, 1 << 70),
    st.integers(-8, 90) | st.just(FAR_MS),
)
sizes_ms = st.sampled_from((1, 7, 30, 1_000))


def open_windows(rows: MemoryRows, size_ms: int, lag_ms: int = 0) -> tuple[TaskState, WindowFold]:
    """Open windows over the state of a task."""
    state = TaskState(rows, buckets=4)
    windows = WindowFold(
        state, "windows", size_ms=size_ms, lag_ms=lag_ms, regroup=REGROUPED, folds=FOLDS
    )
    return state, windows


def record_of(one: Payment, offset: int) -> Record:
    """Write a payment as the columns of its row."""
    value = json.dumps({"account": one.account, "cents": one.cents}).encode()
    return Record(b"key", value, one.time_ms, (), "paid", 0, offset)


def row_of(closed: Closed) -> Folded:
    """Read a row that has left."""
    found = json.loads(closed.value or b"")
    account, _, end = found["g"]
    count, total, least, greatest, collected = found["a"]
    assert closed.group.decode() == account
    assert end.endswith("000Z")
    kept = tuple(map(int, json.loads(collected)))
    row = _number(total), _number(least), _number(greatest), kept
    return Folded(closed.time_ms + 1, account, int(count), *row)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


@given(st.lists(payments, max_size=24), sizes_ms, st.integers(0, 20), st.data())
@example([Payment("ann", 1, 0), Payment("ann", None, 6)], 7, 0, None)
def test_a_window_leaves_once_with_all_of_its_records(
    given_payments: list[Payment], size_ms: int, lag_ms: int, data: st.DataObject | None
) -> None:
    waiting = sorted(given_payments, key=lambda one: one.time_ms)
    rows, left, progress_ms = MemoryRows(), [], -FAR_MS
    total = len(waiting)
    while waiting:
        cut = 1 if data is None else data.draw(st.integers(1, len(waiting)))
        batch, waiting = waiting[:cut], waiting[cut:]
        state, windows = open_windows(rows, size_ms, lag_ms)
        arrivals = [Arrival(0, record_of(one, number)) for number, one in enumerate(batch)]
        assert list(windows.process(Arrivals.of(arrivals))) == []
        # No later record comes before this time.
        progress_ms = (waiting[0].time_ms if waiting else batch[-1].time_ms) + lag_ms
        left += windows.advance(progress_ms)
        assert windows.advance(progress_ms) == []
        assert windows.balance() == 0
        state.save()
    if not total:
        return
    expected = folded(given_payments, size_ms, progress_ms - lag_ms)
    assert [row_of(each) for each in left] == expected
    state, windows = open_windows(rows, size_ms, lag_ms)
    assert windows.held == total - sum(row.records for row in expected)
    left += windows.advance(2 * FAR_MS)
    state.save()
    assert [row_of(each) for each in left] == folded(given_payments, size_ms, 2 * FAR_MS)
    # Windows that have left take no room.
    assert set(rows) == {"header"}
    assert not any(name.startswith("window:") for name in state.numbers)


def test_a_record_whose_window_has_left_is_late() -> None:
    state, windows = open_windows(MemoryRows(), 10)
    windows.advance(25)
    given_payments = [Payment("ann", 1, 19), Payment("ann", 2, 20), Payment("bob", 3, -1)]
    arrivals = [Arrival(0, record_of(one, number)) for number, one in enumerate(given_payments)]
    assert list(windows.process(Arrivals.of(arrivals))) == [0, 2]
    assert [row_of(each) for each in windows.advance(30)] == [Folded(30, "ann", 1, 2, 2, 2, (2,))]
    assert state.numbers["windows:dropped:late"] == 2
    assert windows.balance() == 0


def test_records_without_a_group_or_a_value_are_counted() -> None:
    state, windows = open_windows(MemoryRows(), 10)
    none = Record(b"key", b'{"account":null,"cents":1}', 5, (), "paid", 0, 0)
    deleted = Record(b"key", None, 5, (), "paid", 0, 1)
    assert list(windows.process(Arrivals.of([Arrival(0, none), Arrival(0, deleted)]))) == []
    assert windows.advance(30) == []
    assert state.numbers["windows:ungrouped"] == state.numbers["windows:dropped:null-value"] == 1
    assert windows.balance() == 0


def test_years_of_any_length_are_times_that_spark_reads() -> None:
    folds = Folds(0, ())
    total = folds.add(None, [b"[]"])
    bounds = time_text(-62_167_219_200_000), time_text(253_402_300_800_000)
    assert bounds == ("0000-01-01T00:00:00.000000Z", "+10000-01-01T00:00:00.000000Z")
    assert json.loads(folds.result(total, *bounds))["g"] == [*bounds]


def test_a_least_value_keeps_no_other() -> None:
    folds = Folds(0, (Fold("min", "number", counts_rows=False),))
    total = folds.add(None, [b'["3"]', b'["1"]', b"[null]"])
    assert json.loads(folds.add(total, [b'["2"]']))["s"] == [{"1": 1}]
