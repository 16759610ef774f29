"""Vectors as files of rows, a file for each micro-batch; the rows of a file stand in no order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.vectors import Vector, is_record, record_of
from tests.conformance.versioned import INPUTS
from tests.spark import frames

SCHEMA = f"{frames.SCHEMA}, arrival BIGINT, progress_ms BIGINT"
_ARROW = frames.ARROW.append(pa.field("arrival", pa.int64())).append(
    pa.field("progress_ms", pa.int64())
)
_EPOCH_S = 1_000_000_000


def cut(vector: Vector, batches: int, random: Random) -> list[range]:
    """Which inputs of a vector go into each batch; some batches have none."""
    size = len(vector["input"])
    places = sorted(random.randint(0, size) for _ in range(batches - 1))
    return [range(*pair) for pair in zip([0, *places], [*places, size], strict=True)]


def write_batches(
    folder: Path, vectors: Sequence[Vector], cuts: Sequence[Sequence[range]], random: Random
) -> list[Path]:
    """A file for each batch; a vector's number is its partition."""
    files: list[Path] = []
    for number, ranges in enumerate(zip(*cuts, strict=True)):
        rows = [
            row
            for partition, (vector, places) in enumerate(zip(vectors, ranges, strict=True))
            for row in _rows(vector, partition, places)
        ]
        random.shuffle(rows)
        file = folder / f"{number:05}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, _ARROW), file)
        # Spark reads files in the order of their times.
        os.utime(file, (_EPOCH_S + number, _EPOCH_S + number))
        files.append(file)
    return files


def _rows(vector: Vector, partition: int, places: range) -> Iterator[dict[str, Any]]:
    for arrival in places:
        entry = vector["input"][arrival]
        row = {"arrival": arrival, "partition": partition}
        if is_record(entry):
            record = record_of(entry)
            headers = [{"key": name, "value": value} for name, value in record.headers]
            yield record._asdict() | row | {"input": INPUTS[record.topic], "headers": headers}
        elif "progress" in entry:
            yield row | {"topic": "all", "progress_ms": entry["progress"]}
        else:
            call = {"input": 0, "topic": "calls", "offset": arrival, "timestamp_ms": 0}
            yield row | call | {"value": json.dumps(entry).encode()}
