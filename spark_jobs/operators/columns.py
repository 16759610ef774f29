"""Convert the rows of a task between Spark's frames and our columns, never row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.bundles import Unopened, set_apart, unbundled
from headrace.spark_jobs.operators.results import slices
from headrace.spark_jobs.shapes import BUNDLE, FIELDS, LOWEST
from headrace.spark_jobs.versioned.arrival import COPIED, Arrivals
from headrace.spark_jobs.versioned.layout import NO_OFFSET
from headrace.spark_jobs.versioned.records import Columns, Records, are_present, objects
from headrace.spark_jobs.write.row_json import json_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.spark_jobs.operators.results import Results

RECORD, PROGRESS, ROW, ASK, ANSWER, PART, TASK_PROGRESS = range(7)
"""Kinds of rows: of an input, of its progress, and from one stage to the next, with what a task has
passed."""
COPY = -COPIED
"""The kind of a copy: a table's record of a hot key, on its way to a task that is not the key's."""
NO_INPUT = -1
"""The input of a row that belongs to none."""

RESULTS_SCHEMA = (
    "verdict string, reason string, task int, sequence bigint, cause bigint, input int,"
    " topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary,"
    " table_value binary, headers string, number bigint, added bigint"
)
"""The columns of a row that goes out."""

_BINARY = pa.binary()


class Taken(NamedTuple):
    """The rows of a task in their order."""

    arrivals: Arrivals
    """All rows. A row of progress is an empty record at the time that it tells. A copy and a row
    from another stage have their kind, negated, as their input."""
    progress: list[int]
    """The indexes of the rows of progress."""
    causes: NDArray[np.int64] | None
    """The number of each row among all arrivals, if it was given."""
    asides: list[tuple[dict[str, Any], Record]]
    """Rows that pass through, and their verdicts."""
    unopened: Unopened
    """Rows that this stage only hands on."""


def take(frames: Iterable[pd.DataFrame]) -> Taken:
    """Put all rows of a task in order."""
    columns, unopened = _gather(frames)
    asides: list[tuple[dict[str, Any], Record]] = []
    passing = are_present(columns["aside"])
    if passing.any():
        apart = {name: column[passing] for name, column in columns.items()}
        texts = apart["aside"].tolist()
        records = _records(apart, np.arange(len(texts)))
        asides = [(json.loads(text), each) for text, each in zip(texts, records, strict=True)]
        columns = {name: column[~passing] for name, column in columns.items()}
    order = _order_of(columns)
    kinds = columns["kind"][order]
    inputs = np.where(kinds == RECORD, columns["input"][order], -kinds).astype(np.int32)
    return Taken(
        Arrivals(inputs, _records(columns, order)),
        np.flatnonzero(kinds == PROGRESS).tolist(),
        columns["arrival"][order] if "arrival" in columns else None,
        asides,
        unopened,
    )


def _records(columns: dict[str, NDArray[Any]], order: NDArray[np.intp]) -> Records:
    """Return the records of these rows, in this order."""
    names = ("key", "value", "timestamp_ms", "headers", "topic", "partition", "offset")
    own = Columns(*(columns[name] for name in names))
    return Records(own._replace(headers=_headers_of(columns["headers"])), order)


def _gather(frames: Iterable[pd.DataFrame]) -> tuple[dict[str, NDArray[Any]], Unopened]:
    """Return the columns of all frames; frames of Spark's have bundles of rows."""
    found = [*frames]
    if all(BUNDLE in frame for frame in found):
        bundles, unopened = set_apart(one for frame in found for one in frame[BUNDLE])
        return unbundled(bundles), unopened
    pieces = [{name: frame[name].to_numpy() for name in frame.columns} for frame in found]
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return columns, Unopened([], 0)


def _order_of(columns: dict[str, NDArray[Any]]) -> NDArray[np.intp]:
    """Merge lanes by the timestamps of their heads, the lowest input first on ties.

    A lane is never reordered within itself: a record behind a later one of its lane follows that
    one, at the lane's highest timestamp so far. Progress is read last, and rows that answers will
    join are read first.
    """
    # A copy stands where its record would.
    kinds = np.where(columns["kind"] == COPY, RECORD, columns["kind"])
    places = columns["place"]
    if "arrival" in columns:
        return np.lexsort((places, kinds, columns["arrival"]))
    order = np.lexsort((places, columns["lane"], columns["input"], kinds))
    lanes = np.stack([each[order] for each in (kinds, columns["input"], columns["lane"])])
    starts = np.flatnonzero(np.any(lanes[:, 1:] != lanes[:, :-1], axis=0)) + 1
    times = columns["timestamp_ms"][order]
    if not len(times):
        return order
    highest = np.concatenate([np.maximum.accumulate(lane) for lane in np.split(times, starts)])
    highest[lanes[0] == PROGRESS] = np.iinfo(np.int64).max
    highest[lanes[0] == ROW] = np.iinfo(np.int64).min
    return order[np.argsort(highest, kind="stable")]


def _headers_of(column: NDArray[Any]) -> NDArray[Any] | None:
    if not are_present(column).any():
        return None
    return objects([() if packed is None else decode_headers(packed) for packed in column])


def frame_of(
    results: Results,
    task: int,
    sequence: int,
    causes: NDArray[np.int64],
    inputs: NDArray[np.int32],
    fields: pa.StructType | None = None,
) -> pd.DataFrame:
    """Make a frame of results; `causes` and `inputs` are those of the batch's arrivals.

    Rows that are made in columns leave as such where they have these `fields`, otherwise as JSON.
    """
    size = len(results.causes)
    records = results.records
    offsets = records.offsets
    columns = {
        "verdict": pa.repeat(results.verdict, size),
        "task": pa.repeat(pa.scalar(task, pa.int32()), size),
        "sequence": pa.array(np.arange(sequence, sequence + size)),
        "cause": pa.array(causes[results.causes]),
        "input": pa.array(inputs[results.causes]),
        "topic": pa.array(records.topics, pa.string()),
        "partition": pa.array(records.partitions, pa.int32()),
        "offset": pa.array(offsets, mask=offsets == NO_OFFSET),
        "timestamp_ms": pa.array(results.times_ms, pa.int64()),
        "key": pa.array(results.keys, _BINARY),
    }
    made = results.made
    if made is None:
        columns["value"] = pa.array(results.values, _BINARY)
    elif made.type == fields:
        columns[FIELDS] = made
    else:
        columns["value"] = json_of(made) if pa.types.is_struct(made.type) else made
    if records.headers is not None:
        packed = [encode_headers(each) for each in records.headers]
        columns["headers"] = pa.array(packed, pa.string())
    if results.table_values is not None:
        columns["table_value"] = results.table_values.cast(_BINARY)
    return _sparse_frame(size, columns)


def frame_of_counts(verdict: str, task: int, counts: dict[str, tuple[int, int]]) -> pd.DataFrame:
    """Make a frame of numbers by name, each with what this batch added to it."""
    size = len(counts)
    return _sparse_frame(
        size,
        {
            "verdict": pa.repeat(verdict, size),
            "reason": pa.array(list(counts), pa.string()),
            "task": pa.repeat(pa.scalar(task, pa.int32()), size),
            "number": pa.array([number for number, _ in counts.values()], pa.int64()),
            "added": pa.array([added for _, added in counts.values()], pa.int64()),
        },
    )


def frame_of_lowest(task: int, lowest: tuple[str, int | None] | None, held: int) -> pd.DataFrame:
    """Make a frame of the place that a task waits for, None for no wait, and what it holds."""
    place, progress_ms = lowest or (None, None)
    return _sparse_frame(
        1,
        {
            "verdict": pa.array([LOWEST]),
            "reason": pa.array([place], pa.string()),
            "task": pa.array([task], pa.int32()),
            "number": pa.array([progress_ms], pa.int64()),
            "added": pa.array([held], pa.int64()),
        },
    )


def frame_of_asides(task: int, asides: Sequence[tuple[dict[str, Any], Record]]) -> pd.DataFrame:
    """Make a frame of the rows that pass through, as they came."""
    said = {
        name: [each.get(name) for each, _ in asides]
        for name in ("verdict", "reason", "number", "added", "task")
    }
    keys, values, times, headers, topics, partitions, offsets = zip(
        *(record for _, record in asides), strict=True
    )
    columns = {
        "verdict": pa.array(said["verdict"], pa.string()),
        "reason": pa.array(said["reason"], pa.string()),
        "task": pa.array([task if t is None else t for t in said["task"]], pa.int32()),
        "number": pa.array(said["number"], pa.int64()),
        "added": pa.array(said["added"], pa.int64()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp_ms": pa.array([_none(time_ms) for time_ms in times], pa.int64()),
        "key": pa.array(keys, _BINARY),
        "value": pa.array(values, _BINARY),
        "headers": pa.array([encode_headers(each) for each in headers], pa.string()),
    }
    return _sparse_frame(len(asides), columns)


def frames_of_bundles(task: int, bundles: Sequence[bytes]) -> Iterator[pd.DataFrame]:
    """Make frames of bundles that go to one task."""
    if bundles:
        for some in slices(map(len, bundles)):
            own = pa.array(bundles[some], _BINARY)
            tasks = pa.repeat(pa.scalar(task, pa.int32()), len(own))
            yield wrapped({"task": tasks, BUNDLE: own})


def _none(number: int) -> int | None:
    """Return a number, None for the one that stands for null in a bundle."""
    return None if number == NO_OFFSET else number


_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": _BINARY}
_RESULTS = [column.split() for column in RESULTS_SCHEMA.split(", ")]


def _sparse_frame(size: int, columns: dict[str, pa.Array]) -> pd.DataFrame:
    """Make a frame of all columns of results, with nulls in the columns that are not given."""
    results = {
        name: columns[name] if name in columns else pa.nulls(size, _TYPES[kind])
        for name, kind in _RESULTS
    }
    # The fields of rows are no column of Spark's, and stand behind these.
    return wrapped(results | columns)


def wrapped(columns: dict[str, pa.Array]) -> pd.DataFrame:
    """Wrap Arrow's own arrays in a frame; Spark unwraps them without a copy."""
    arrays = {name: pd.arrays.ArrowExtensionArray(column) for name, column in columns.items()}
    return pd.DataFrame(arrays, copy=False)


def columns_of(frame: pd.DataFrame) -> pa.Table:
    """Return the arrays that a frame was wrapped around."""
    return pa.table({name: frame[name].array.__arrow_array__() for name in frame.columns})
