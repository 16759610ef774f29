"""Decode the state in a checkpoint: a line for each row of each task."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.observe.waits import lowest_of
from headrace.spark_jobs.operators.processor import ROWS, RUNS
from headrace.spark_jobs.operators.stamp import INPUT
from headrace.spark_jobs.seams import begin_state_registry
from headrace.spark_jobs.versioned import progress
from headrace.spark_jobs.versioned.layout import (
    decode_held,
    decode_numbers,
    decode_slices,
    decode_subscriptions,
    decode_versions,
)
from headrace.spark_jobs.versioned.moving import KIND_AT
from headrace.spark_jobs.versioned.row_bytes import Kind
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.versioned.window_fold import is_of_one_window

_HELD = "held:records"


class StateRow(NamedTuple):
    """One row of state: its operator and task, and its contents."""

    operator: int
    task: int
    name: str
    kind: str
    size_bytes: int
    line: str
    """Its contents in a line."""
    row: bytes
    """Its bytes."""


def read_state(spark: SparkSession, checkpoint: str) -> Iterator[StateRow]:
    """Yield every row of a checkpoint's state, as of its last micro-batch."""
    for operator in operators_of(spark, checkpoint):
        found = stored_rows(spark, checkpoint, operator).orderBy("task", "name")
        for task, name, row in found.toLocalIterator():
            kind = Kind(row[KIND_AT])
            line = contents(kind, bytes(row))
            yield StateRow(operator, task, name, kind.name.lower(), len(row), line, bytes(row))


def stored_rows(spark: SparkSession, checkpoint: str, operator: int) -> DataFrame:
    """Return the state of an operator, as of the last micro-batch: `task`, `name` and `row`."""
    begin_state_registry(spark)
    reader = spark.read.format("statestore").option("operatorId", operator)
    names = "key.task AS task", "user_map_key.name AS name", "user_map_value.row AS row"
    maps = [
        reader.option("stateVarName", one).load(checkpoint).selectExpr(*names)
        for one in _maps_of(spark, checkpoint, operator)
    ]
    return reduce(DataFrame.unionByName, maps)


def _maps_of(spark: SparkSession, checkpoint: str, operator: int) -> list[str]:
    """Return the maps that an operator has; a checkpoint of an older version has no runs."""
    metadata = spark.read.format("state-metadata").load(checkpoint)
    own = metadata.where(metadata["operatorId"] == operator).select("operatorProperties").first()
    assert own is not None, "an operator has metadata"
    variables = json.loads(own["operatorProperties"])["stateVariables"]
    kept = {one["stateName"] for one in variables}
    return [one for one in (ROWS, RUNS) if one in kept]


def waits_of(rows: Iterable[StateRow]) -> Iterator[str]:
    """Yield a sentence for each operator about the partition that it waits for."""
    lowest_of_tasks: defaultdict[int, list[tuple[str, int | None]]] = defaultdict(list)
    held = Counter[int]()
    reading: set[int] = set()
    for row in rows:
        if row.name == HEADER:
            state = TaskState(MemoryRows({HEADER: row.row}))
            lowest = progress.lowest_of(state)
            if lowest is not None:
                lowest_of_tasks[row.operator].append(lowest)
            held[row.operator] += sum(
                number
                for name, number in state.numbers.items()
                if name.endswith(_HELD) or is_of_one_window(name)
            )
            if any(name.startswith(INPUT) for name in state.numbers):
                reading.add(row.operator)
    for operator, places in sorted(lowest_of_tasks.items()):
        records = f"operator {operator} holds {held[operator]} records"
        # One that reads no topic is behind one that does.
        is_behind = bool(reading) and operator not in reading
        waits_for = f"operator {min(reading)}" if is_behind else lowest_of(places)
        yield f"{records}, and waits for {waits_for}"


def operators_of(spark: SparkSession, checkpoint: str) -> list[int]:
    """Return the numbers of the stateful operators of a checkpoint; refuse one without any."""
    # Spark's reader would make a folder where none is.
    is_checkpoint = bool(Folder(spark, checkpoint).names("commits"))
    metadata = spark.read.format("state-metadata")
    found = metadata.load(checkpoint).select("operatorId").collect() if is_checkpoint else []
    numbers = sorted({row["operatorId"] for row in found})
    if not numbers:
        message = f"{checkpoint} is no checkpoint with state in it; name the job's checkpoint"
        raise StateUnavailable(message)
    return numbers


def contents(kind: Kind, row: bytes) -> str:
    """Describe the contents of a row in a line."""
    match kind:
        case Kind.VERSIONS:
            histories = decode_versions(row)
            versions = sum(len(times) for times, _ in histories.values())
            return f"{len(histories)} keys, {versions} versions"
        case Kind.HELD:
            held = [record.timestamp_ms for _, record in decode_held(row)]
            return f"{len(held)} records held, {min(held)} to {max(held)} ms" if held else "none"
        case Kind.SUBSCRIPTIONS:
            subscribers = decode_subscriptions(row)
            rows = sum(len(marks) for marks in subscribers.values())
            return f"{len(subscribers)} foreign keys, {rows} rows that point at them"
        case Kind.NUMBERS:
            return " ".join(f"{name}={number}" for name, number in decode_numbers(row).items())
        case Kind.SLICES:
            return f"{len(decode_slices(row))} slices hold records"
