"""Bundle the rows of a task before they are shuffled, and take them out again in the task.

Spark writes, sorts and converts each row of a shuffle, and Python would get each of them anew. So
rows of one task travel together: a bundle is one row of Spark's, and its bytes are an Arrow batch
of rows as `ROWS_SCHEMA` says, behind the number of their task.

    a bundle for the next stage        an Arrow batch, which begins with 255
    one for the stage behind that      0 (u8) | the same

The next stage hands the latter on without its 0, and opens it only to count its rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.versioned.layout import NO_OFFSET
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.write.bundled import serialized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

ROWS_SCHEMA = (
    "task int, kind int, input int, lane int, place bigint, topic string, partition int,"
    " offset bigint, timestamp_ms bigint, key binary, value binary, headers string, aside string"
)
"""The columns of a row that comes in.

Rows of one kind, input and lane are in order of their places. `aside` is null, or the row only
passes through, and `aside` tells the verdict that it has already. A column `arrival bigint` stands
behind them if the order of arrival is given.
"""

BUNDLES_SCHEMA = f"task int, {BUNDLE} binary"
_BEHIND = b"\0"
"""Begins a bundle for the stage behind the next one."""
_NO_NUMBER = -1
"""It stands for null in columns of 32 bits."""
_TASK, _ARRIVAL = "task", "arrival"
_OUTER = pa.schema([(_TASK, pa.int32()), (BUNDLE, pa.binary())])
_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_INNER = pa.schema(
    [
        *((name, _TYPES[kind]) for name, kind in map(str.split, ROWS_SCHEMA.split(", ")[1:])),
        (_ARRIVAL, pa.int64()),
    ]
)
_ROWS = pa.schema([_OUTER.field(_TASK), *_INNER])


class Unopened(NamedTuple):
    """Bundles that the next stage opens."""

    bundles: list[bytes]
    rows: int
    """How many rows are in them."""


def bundles_of_rows(rows: Sequence[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Bundle rows that are no batch yet; a column that a row leaves out is null."""
    return bundles_of(pa.RecordBatch.from_pylist([*rows], _ROWS))


def bundles_of(
    batch: pa.RecordBatch, behind: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    """Bundle the rows of a batch; those of one task keep their order.

    `behind` tells which rows are for the stage behind the next one; without it none is.
    """
    if not batch.num_rows:
        return
    tasks = batch.column(_TASK).to_numpy()
    ways = 2 * tasks + (0 if behind is None else behind)
    order = np.argsort(ways, kind="stable")
    rows, ways = _inner(batch).take(pa.array(order)), ways[order]
    bounds = [0, *(np.flatnonzero(np.diff(ways)) + 1).tolist(), len(ways)]
    of_tasks: list[int] = []
    packed: list[bytes] = []
    for start, end in pairwise(bounds):
        own = rows.slice(start, end - start)
        task, is_behind = divmod(int(ways[start]), 2)
        for one in serialized(own):
            of_tasks.append(task)
            packed.append(_BEHIND + one if is_behind else one)
    yield pa.RecordBatch.from_pydict({_TASK: of_tasks, BUNDLE: packed}, _OUTER)


def _inner(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without its tasks, and with an arrival in any case."""
    given = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in given else pa.nulls(batch.num_rows, field.type)
        for field in _INNER
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_INNER)


def set_apart(bundles: Iterable[bytes]) -> tuple[list[bytes], Unopened]:
    """Return the bundles for this stage, and those that it hands on to the next one."""
    own: list[bytes] = []
    others: list[bytes] = []
    for one in bundles:
        if one.startswith(_BEHIND):
            others.append(one[len(_BEHIND) :])
        else:
            own.append(one)
    return own, Unopened(others, sum(_batch_of(one).num_rows for one in others))


def unbundled(bundles: Iterable[bytes]) -> dict[str, NDArray[Any]]:
    """Return the rows of bundles in columns; `arrival` is among them if it was given."""
    rows = pa.Table.from_batches(map(_batch_of, bundles), _INNER)
    if rows.column(_ARRIVAL).null_count == rows.num_rows:
        rows = rows.drop_columns(_ARRIVAL)
    return {name: _column(rows.column(name)) for name in rows.column_names}


def _batch_of(bundle: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(bundle), _INNER)


def _column(column: pa.ChunkedArray) -> NDArray[Any]:
    values: NDArray[Any]
    if pa.types.is_integer(column.type):
        nothing = NO_OFFSET if column.type == pa.int64() else _NO_NUMBER
        values = column.fill_null(nothing).to_numpy()
    elif column.null_count == len(column):
        values = np.full(len(column), None, object)
    elif pa.types.is_string(column.type):
        # Topics are few, and so are the sentences about dead records.
        coded = column.dictionary_encode().combine_chunks()
        texts = objects([*coded.dictionary.to_pylist(), None])
        values = texts[coded.indices.fill_null(len(texts) - 1).to_numpy()]
    else:
        values = column.to_numpy()
    return values
