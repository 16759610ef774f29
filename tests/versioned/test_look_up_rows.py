"""A stream-table join that makes its rows, by a function that may fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import StreamTableJoin
from headrace.spark_jobs.versioned.tables import Source, Versioned
from tests.versioned.examples import FIRST, SECOND, first, second

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Objects


def _row_of(key: bytes | None, value: bytes, table_value: bytes | None) -> bytes | None:
    if value == b"out":
        return None
    if value == b"bad":
        message = "no row"
        raise ValueError(message)
    return b"/".join(part or b"-" for part in (key, value, table_value))


def _rows_of(
    keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
) -> pa.StructArray | None:
    if b"bad" in values:
        return None
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), table_values]
    left_out = pa.array(values == b"out")
    return pa.StructArray.from_arrays(columns, names=["key", "value", "table_value"], mask=left_out)


def _join(**options: Any) -> tuple[TaskState, StreamTableJoin]:
    state = TaskState(MemoryRows(), 4)
    table = Source(state, "table", FIRST, Versioned(1000))
    join = StreamTableJoin(
        state, "join", table, stream=SECOND, join="left", row_of=_row_of, **options
    )
    return state, join


def test_a_row_is_made_of_a_record_and_what_it_meets() -> None:
    _, join = _join()
    matches = join.process([first(b"k", b"t", 1), second(b"k", b"s", 2), second(None, b"u", 2)])
    assert matches.rows is not None
    assert matches.rows.tolist() == [b"k/s/t", b"-/u/-"]


def test_records_without_a_row_are_apart() -> None:
    state, join = _join(release="progress")
    join.process([first(b"k", b"t", 1), second(b"k", b"s", 2), second(b"k", b"bad", 3)])
    join.process([second(b"k", b"u", 4)])
    matches = join.advance(9, cause=0)
    assert matches.rows is not None
    assert matches.rows.tolist() == [b"k/s/t", b"k/u/t"]
    assert [each.value for each in matches.records] == [b"s", b"u"]
    assert matches.causes.tolist() == [0, 0]
    assert matches.table_values.to_pylist() == [b"t", b"t"]
    assert [(record.value, str(failed.__cause__)) for record, failed in matches.failed] == [
        (b"bad", "no row")
    ]
    assert (state.numbers["join:joined"], state.numbers["join:failed"]) == (2, 1)
    assert join.balance() == 0


def test_a_correction_has_a_row_too_unless_it_cannot_be_made() -> None:
    state, join = _join(corrects=True)
    join.process([second(b"k", b"s", 5), second(b"k", b"bad", 6)])
    matches = join.process([first(b"k", b"t", 1)])
    assert matches.corrected_rows is not None
    assert matches.corrected_rows.tolist() == [b"k/s/t"]
    assert [each.record.value for each in matches.corrections] == [b"s"]
    assert [record.value for record, _ in matches.failed] == [b"bad"]
    assert state.numbers["join:corrected"] == 1
    assert join.balance() == 0


def test_rows_are_made_at_once_unless_these_cannot() -> None:
    state, join = _join(rows_of=_rows_of)
    matches = join.process([first(b"k", b"t", 1), second(b"k", b"s", 2), second(None, b"u", 2)])
    assert matches.rows is None
    assert matches.made is not None
    assert matches.made.to_pylist() == [
        {"key": b"k", "value": b"s", "table_value": b"t"},
        {"key": None, "value": b"u", "table_value": None},
    ]
    matches = join.process([second(b"k", b"v", 3), second(b"k", b"bad", 3)])
    assert matches.made is None
    assert matches.rows is not None
    assert matches.rows.tolist() == [b"k/v/t"]
    assert [record.value for record, _ in matches.failed] == [b"bad"]
    assert (state.numbers["join:joined"], state.numbers["join:failed"]) == (3, 1)
    assert join.balance() == 0


def test_corrections_of_rows_made_at_once_are_made_one_by_one() -> None:
    _, join = _join(corrects=True, rows_of=_rows_of)
    assert join.process([second(b"k", b"s", 5)]).made is not None
    matches = join.process([first(b"k", b"t", 1)])
    assert matches.corrected_rows is not None
    assert matches.corrected_rows.tolist() == [b"k/s/t"]


@pytest.mark.parametrize("values", [(b"out", b"s", b"out"), (b"s", b"out", b"bad")])
def test_rows_that_are_left_out_are_joined_and_do_not_leave(values: tuple[bytes, ...]) -> None:
    state, join = _join(rows_of=_rows_of)
    matches = join.process([second(b"k", value, n) for n, value in enumerate(values)])
    failed = values.count(b"bad")
    assert [record.value for record in matches.records] == [b"s"]
    assert matches.causes.tolist() == [values.index(b"s")]
    assert len(matches.table_values) == 1
    if failed:
        assert matches.rows is not None
        assert matches.rows.tolist() == [b"k/s/-"]
    else:
        assert matches.made is not None
        assert [row["value"] for row in matches.made.to_pylist()] == [b"s"]
    assert state.numbers["join:joined"] == len(values) - failed
    assert join.balance() == 0
