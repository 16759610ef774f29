"""A task's results leave in pieces, in their order, and no piece is too large for a column."""

from __future__ import annotations

import json
from mmap import mmap

import numpy as np
import pyarrow as pa
import pytest

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import frame_of
from headrace.spark_jobs.operators.results import Results, slices
from headrace.spark_jobs.shapes import FIELDS, JOINED
from headrace.spark_jobs.versioned.records import Records, objects

ROWS = 7


def results_of(told: list[bytes | None] | None) -> Results:
    """Rows of a key of two bytes and a value of three, and what a table says."""
    keys = [b"k%d" % one for one in range(ROWS)]
    values = [None if one == 1 else b"v%02d" % one for one in range(ROWS)]
    records = [
        Record(key, value, one, (), "topic", 0, one)
        for one, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return Results(
        JOINED,
        np.arange(ROWS),
        Records.of(records),
        objects(keys),
        objects(values),
        np.arange(ROWS),
        None if told is None else pa.array(told, pa.large_binary()),
    )


@pytest.mark.parametrize("bytes_max", [1, 12, 40, 1 << 20])
def test_rows_leave_with_their_fields_or_as_json(bytes_max: int) -> None:
    texts = [None, "", "x", "x" * 30, "é", '"', "xy"]
    fields = pa.array([{"n": n, "text": text} for n, text in enumerate(texts)])
    pieces = [*results_of(None).with_made(fields).in_pieces(bytes_max)]
    assert len(pieces) == {1: ROWS, 12: ROWS, 40: 3}.get(bytes_max, 1)
    causes, inputs = np.arange(ROWS), np.zeros(ROWS, np.int32)
    for kept in (fields.type, None, pa.struct({"n": pa.int64()})):
        frames = [frame_of(piece, 0, 0, causes, inputs, kept) for piece in pieces]
        if kept == fields.type:
            assert [row for frame in frames for row in frame[FIELDS]] == fields.to_pylist()
            assert all(frame["value"].isna().all() for frame in frames)
        else:
            found = [json.loads(row) for frame in frames for row in frame["value"]]
            assert found == fields.to_pylist()
            assert all(FIELDS not in frame for frame in frames)


@pytest.mark.parametrize("bytes_max", [1, 40, 1 << 20])
def test_rows_leave_as_the_bytes_that_were_made(bytes_max: int) -> None:
    values = [b"", b"x", b"x" * 30, b"", b"y", b"z" * 20, b"\xff"]
    made = pa.array(values, pa.binary())
    pieces = [*results_of(None).with_made(made).in_pieces(bytes_max)]
    assert len(pieces) == {1: ROWS, 40: 2}.get(bytes_max, 1)
    causes, inputs = np.arange(ROWS), np.zeros(ROWS, np.int32)
    frames = [frame_of(piece, 0, 0, causes, inputs) for piece in pieces]
    assert [row for frame in frames for row in frame["value"]] == values


@pytest.mark.parametrize("bytes_max", [1, 5, 12, 40, 1 << 20])
@pytest.mark.parametrize("told", [None, [None, b"", b"x", b"x" * 30, None, b"xy", b"x" * 4]])
def test_all_rows_leave_in_their_order(told: list[bytes | None] | None, bytes_max: int) -> None:
    whole = results_of(told)
    pieces = [*whole.in_pieces(bytes_max)]
    assert [cause for piece in pieces for cause in piece.causes] == [*range(ROWS)]
    frames = [frame_of(piece, 0, 0, whole.causes, np.zeros(ROWS, np.int32)) for piece in pieces]
    for name in ("key", "value", "table_value", "timestamp_ms", "offset"):
        (expected,) = (
            frame_of(each, 0, 0, whole.causes, np.zeros(ROWS, np.int32))[name].to_list()
            for each in [whole]
        )
        assert [row for frame in frames for row in frame[name].to_list()] == expected
    for frame in frames:
        parts = (frame[name].to_list() for name in ("key", "value", "table_value"))
        together = sum(len(one) for part in parts for one in part if isinstance(one, bytes))
        assert together <= bytes_max or len(frame) == 1


def test_runs_are_as_long_as_they_may_be() -> None:
    assert [*slices([3, 3, 3], 6)] == [slice(0, 2), slice(2, 3)]
    assert [*slices([9, 1, 9], 6)] == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert [*slices([1], 6)] == [slice(0, 1)]


@pytest.mark.long("spark", why="it makes two gigabytes of rows")
def test_a_task_whose_rows_fill_a_column_of_arrow_leaves_in_many_frames() -> None:
    size, rows = 1 << 20, 2_200
    records = Records.of([Record(b"k", b"v", 1, (), "topic", 0, one) for one in range(rows)])
    # Two gigabytes of zeros that nobody has to keep.
    column = [None, pa.py_buffer(np.arange(rows + 1) * size), pa.py_buffer(mmap(-1, rows * size))]
    told = pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, column)
    many = Results(
        JOINED, np.arange(rows), records, records.keys, records.values, records.times_ms, told
    )
    causes, inputs = np.arange(rows), np.ones(rows, np.int32)
    found = 0
    for piece in many.in_pieces():
        assert len(piece.causes) <= 64
        frame = frame_of(piece, 0, 0, causes, inputs)
        assert frame["offset"].to_list() == [*range(found, found + len(frame))]
        found += len(frame)
    assert found == rows
