"""Runs many vectors in one streaming query, a task each, and compares what each of them gives.

The query is cut into micro-batches at random; it fails in the middle of one, after that batch's
output was seen and before the batch was done, and goes on from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate_each
from headrace.spark_jobs.operators.topology import LookUp, Topic, Topology, verify
from headrace.spark_jobs.shapes import CHANGED, COUNT, JOINED
from headrace.spark_jobs.versioned.spread import xxhash64
from tests.conformance.compare import Run, compare
from tests.conformance.spark.batches import SCHEMA, cut, write_batches
from tests.conformance.spark.topologies import topology_of
from tests.conformance.vectors import Vector
from tests.conformance.versioned import other_results

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Integers

AREAS = {"stream_table_join", "versioned_table"}
CUTS = (1, 5, 16)
"""Into how many micro-batches a vector is cut."""
_SEED = 20_261_121
_LIKE = LookUp("like", Topic("table", 0), stream=1, release="progress")
_BATCHES_SPREAD = 5
_PARTITIONS_MAX = 10_000
"""A task is a partition, and waits for its own alone."""
_Told = dict[int, dict[int, list[dict[str, Any]]]]
"""Rows by task, then by micro-batch."""
_MEETING_ELSEWHERE = ("fk_join", "table_aggregate")
_TASKS = 3
"""Over how many tasks the keys of one vector are spread, where they are spread at all."""


@dataclass(frozen=True)
class _SpreadVectors(Spread):
    """Each vector, which is a partition, over a few tasks of its own."""

    def task(self) -> Column:
        hashed = F.coalesce(F.pmod(F.xxhash64("key"), F.lit(_TASKS)), F.lit(0))
        return (F.col("partition") * _TASKS + hashed).cast("int")

    def tasks_of(self, keys: Sequence[bytes | None], partitions: Integers) -> Integers:
        hashed = [0 if key is None else xxhash64(key) % _TASKS for key in keys]
        return partitions * _TASKS + np.array(hashed, np.int64)


def run_vectors(
    spark: SparkSession, vectors: Sequence[Vector], folder: Path, cuts: Sequence[int] = CUTS
) -> list[list[str]]:
    """Return the differences from each vector, in words."""
    found: list[list[str]] = [[] for _ in vectors]
    topologies: dict[int, Topology] = {}
    for number, vector in enumerate(vectors):
        run = Run()
        try:
            topology = topology_of(vector)
            verify(topology)
        except TopologyRefused as refused:
            run.refused = str(refused)
        if run.refused is None and not _must_be_refused(vector):
            topologies[number] = topology
        else:
            found[number] += compare(vector, run, 1)
    for batches in cuts:
        trial = _Trial(spark, folder / f"cut-{batches}", batches)
        for number, problems in trial.alone(vectors, topologies).items():
            found[number] += [f"in {batches} micro-batches: {each}" for each in problems]
    trial = _Trial(spark, folder / "spread", min(cuts[-1], _BATCHES_SPREAD))
    for number, problems in trial.spread(vectors, topologies).items():
        found[number] += [f"over {_TASKS} tasks: {each}" for each in problems]
    return found


def _must_be_refused(vector: Vector) -> bool:
    return (vector.get("error") or {}).get("phase") in {"build", "start"}


class _Trial:
    """Vectors in so many micro-batches."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int) -> None:
        self._spark = spark
        self._folder = folder
        self._batches = batches
        self._random = Random(_SEED + batches)

    def alone(
        self, vectors: Sequence[Vector], topologies: Mapping[int, Topology]
    ) -> dict[int, list[str]]:
        """Each vector in one task."""
        told, cuts = self._run(vectors, topologies, _LIKE, Spread("partition"))
        places = zip(topologies, cuts, strict=True)
        return {
            number: _problems(vectors[number], told.get(place, {}), ranges)
            for place, (number, ranges) in enumerate(places)
        }

    def spread(
        self, vectors: Sequence[Vector], topologies: Mapping[int, Topology]
    ) -> dict[int, list[str]]:
        """Vectors whose rows meet in other tasks, each over a few tasks."""
        found: dict[int, list[str]] = {}
        for operator in _MEETING_ELSEWHERE:
            chosen = {
                number: each
                for number, each in topologies.items()
                if vectors[number]["operator"] == operator and not _expires(vectors[number])
            }
            if not chosen:
                continue
            like = next(iter(chosen.values()))
            spread = _SpreadVectors("key", tasks=_TASKS * len(chosen))
            told, _ = self._run(vectors, chosen, like, spread)
            for place, number in enumerate(chosen):
                rows = [
                    row
                    for task in range(place * _TASKS, (place + 1) * _TASKS)
                    for some in told.get(task, {}).values()
                    for row in some
                ]
                found[number] = _other_outputs(vectors[number], rows)
        return found

    def _run(
        self,
        vectors: Sequence[Vector],
        topologies: Mapping[int, Topology],
        like: Topology,
        spread: Spread,
    ) -> tuple[_Told, list[list[range]]]:
        chosen = [vectors[number] for number in topologies]
        cuts = [cut(vector, self._batches, self._random) for vector in chosen]
        each = list(topologies.values())
        tasks = _TASKS if spread.by == "key" else 1
        folder = self._folder / type(like).__name__
        query = _Query(self._spark, folder, lambda task: each[task // tasks], like, spread)
        return query.run(chosen, cuts, self._random), cuts


def _expires(vector: Vector) -> bool:
    """Whether retention is over for some record: each task has a time of its own for that."""
    retentions = [
        described["history_retention_ms"]
        for described in vector["config"].values()
        if isinstance(described, dict) and described.get("versioned")
    ]
    times = [entry["ts"] for entry in vector["input"]]
    reached = accumulate(times, max)
    if not retentions:
        return False
    shortest = min(retentions)
    return any(at - time > shortest for at, time in zip(reached, times, strict=True))


def _other_outputs(vector: Vector, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Yield the differences; outputs of one cause have no order between keys, which live apart."""
    run = Run()
    outputs = [_output(vector, row) for row in rows if row["verdict"] == CHANGED]
    run.outputs = sorted(outputs, key=_place)
    wanted = vector | {"output": sorted(vector["output"], key=_place), "metrics": {}}
    return compare(wanted, run, batch_size=len(vector["input"]))


def _place(output: dict[str, Any]) -> tuple[int, str]:
    return output["after_input"], output["key"]


class _Query:
    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        of_task: Callable[[int], Topology],
        like: Topology,
        spread: Spread,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._of_task = of_task
        self._like = like
        self._spread = spread
        self._batches: dict[int, list[dict[str, Any]]] = {}
        self._fails_at: int | None = None

    def run(
        self, vectors: Sequence[Vector], cuts: Sequence[Sequence[range]], random: Random
    ) -> _Told:
        """The rows that left."""
        inputs = self._folder / "input"
        inputs.mkdir(parents=True)
        files = write_batches(inputs, vectors, cuts, random)
        if len(files) > 1:
            self._fails_at = len(files) // 2
            self._start_and_wait()
            assert self._fails_at is None, "the query was to fail once"
        self._start_and_wait()
        assert sorted(self._batches) == list(range(len(files)))
        told: _Told = {}
        for batch, rows in sorted(self._batches.items()):
            for row in sorted(rows, key=lambda row: (row["task"], row["sequence"] or 0)):
                told.setdefault(row["task"], {}).setdefault(batch, []).append(row)
        return told

    def _start_and_wait(self) -> None:
        frame = (
            self._spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / "input"))
        )
        records = frame.where(F.col("progress_ms").isNull()).drop("progress_ms")
        progress = frame.where(F.col("progress_ms").isNotNull())
        of_inputs = InputProgress(progress, {0: _PARTITIONS_MAX}, {0: "all"})
        results = operate_each(self._of_task, self._like, records, self._spread, of_inputs)
        query = (
            results.writeStream.foreachBatch(self._see)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "on purpose" not in str(error):
                raise

    def _see(self, frame: DataFrame, batch: int) -> None:
        columns = (
            "verdict", "reason", "task", "sequence", "cause", "timestamp_ms", "key", "value",
            "table_value", "headers", "number",
        )  # fmt: skip
        self._batches[batch] = frame.select(*columns).toArrow().to_pylist()
        if batch == self._fails_at:
            self._fails_at = None
            message = "this batch fails on purpose"
            raise RuntimeError(message)


def _problems(
    vector: Vector, told: dict[int, list[dict[str, Any]]], ranges: Sequence[range]
) -> list[str]:
    run = Run()
    numbers: dict[str, int] = {}
    for batch, places in enumerate(ranges):
        for row in told.get(batch, ()):
            if row["verdict"] in {JOINED, CHANGED}:
                run.outputs.append(_output(vector, row))
            elif row["verdict"] == COUNT:
                numbers[row["reason"]] = row["number"]
        if places and places.stop:
            held = "suppressed" if "suppressed:records" in numbers else "join:held"
            pair = [numbers.get(f"{held}:{unit}", 0) for unit in ("records", "bytes")]
            run.traces["buffer_trace", places.stop - 1] = pair
    run.metrics = _metrics(numbers)
    if numbers.get("join:balance"):
        run.problems.append(f"the join lost or invented {numbers['join:balance']} records")
    if vector["operator"] == "versioned_store":
        run.problems += other_results(vector["output"], run.outputs)
        run.outputs = []
        vector = vector | {"output": []}
    return compare(vector, run, batch_size=len(vector["input"]))


def _output(vector: Vector, row: dict[str, Any]) -> dict[str, Any]:
    if vector["operator"] == "versioned_store":
        return {"after_input": row["cause"], "result": json.loads(row["value"])}
    value = row["value"]
    if row["verdict"] == JOINED:
        value = b"%s+%s" % (value, b"null" if row["table_value"] is None else row["table_value"])
    headers = {
        each["key"]: None if each["value"] is None else each["value"].decode()
        for each in row["headers"] or ()
    }
    return {
        "after_input": row["cause"],
        "key": None if row["key"] is None else row["key"].decode(),
        "value": value,
        "ts": row["timestamp_ms"],
        "headers": headers,
    }


def _metrics(numbers: dict[str, int]) -> dict[str, float]:
    records = numbers.get("task:records", 0)
    late_ms = numbers.get("task:late_total_ms", 0)
    measured = {
        "dropped_records_total": sum(n for name, n in numbers.items() if ":dropped:" in name),
        "record_lateness_avg": late_ms / records if records else 0,
        "record_lateness_max": numbers.get("task:late_max_ms", 0),
    }
    micro = {
        name.removeprefix("micro:"): number / 1_000_000
        for name, number in numbers.items()
        if name.startswith("micro:")
    }
    return measured | micro
