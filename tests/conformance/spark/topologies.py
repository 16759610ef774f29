"""A vector as a topology of the Spark operators."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.services.operators.updates import BufferSamples
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.running import Running
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    FilterStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    MapStep,
    ReadAgainStep,
    Step,
    Topic,
    Topology,
)
from headrace.spark_jobs.shapes import CHANGED
from headrace.spark_jobs.versioned.changes import Changes
from headrace.spark_jobs.versioned.history import VersionedStore
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.versioned.refusals import refuse_global
from headrace.spark_jobs.versioned.state import TaskState
from headrace.spark_jobs.versioned.tables import Table
from tests.conformance.suppressed import Suppressed, SuppressedState
from tests.conformance.vectors import Vector
from tests.conformance.versioned import (
    AGGREGATIONS,
    INPUTS,
    before_colon,
    by_key,
    by_value_before_colon,
    join_values,
    operate_store,
    storage_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.spark_jobs.versioned.arrival import Arrivals


def topology_of(vector: Vector) -> Topology:
    """The topology of a vector; refused where the proposals refuse it."""
    return BUILDERS[vector["operator"]](vector["config"])


def _topic(config: Vector, topic: str) -> Step:
    return Topic(topic, INPUTS[topic], storage_of(config[topic]))


def _with_steps(step: Step, described: Iterable[Vector], prefix: str) -> Step:
    for number, each in enumerate(described):
        step = _with_step(step, each, f"{prefix}-{number}-{each['op']}")
    return step


def _with_step(parent: Step, step: Vector, name: str) -> Step:
    storage = storage_of(step.get("materialized"))
    match step["op"]:
        case "filter":
            kept = step["keep_prefix"].encode()
            return FilterStep(name, parent, lambda _, value: value.startswith(kept), storage)
        case "filter_not":
            gone = step["drop_prefix"].encode()
            return FilterStep(name, parent, lambda _, value: not value.startswith(gone), storage)
        case "map_values":
            suffix = step["suffix"].encode()
            return MapStep(name, parent, lambda _, value: value + suffix, storage)
        case "to_stream_to_table":
            return ReadAgainStep(name, parent, storage)
        case "suppress":
            return SuppressStep(name, parent, step)
        case other:
            raise ValueError(other)


@dataclass(frozen=True)
class SuppressStep:
    """The sidecar's suppress, which no Spark job has, for the vectors that end in one."""

    name: str
    parent: Step
    described: Vector

    def open(self, state: TaskState) -> Table:
        """Its operator over rows of this task."""
        return Suppressed(
            _KeptSuppressed(state), self.name, self.parent.open(state), self.described
        )


class _KeptSuppressed(SuppressedState):
    """The memory of a suppress, in one row of the task."""

    ROW = "suppressed"

    def __init__(self, state: TaskState) -> None:
        super().__init__()
        self._task = state
        row = state.rows.get(self.ROW)
        if row is not None:
            kept = json.loads(row)
            rows = {bytes.fromhex(key): bytes.fromhex(each) for key, each in kept["rows"].items()}
            self.store.write([], rows)
            self.samples = BufferSamples(**kept["samples"])
            self.emitted = kept["emitted"]
        state.add(self)

    def save(self) -> None:
        super().save()
        rows = {key.hex(): row.hex() for key, row in self.store.range(b"", b"\xff" * 64)}
        kept = {"rows": rows, "samples": asdict(self.samples), "emitted": self.emitted}
        self._task.rows.put(self.ROW, json.dumps(kept).encode())
        for name, number in self.metrics().items():
            # Numbers are whole; an average is told in millionths.
            self._task.numbers[f"micro:{name}"] = round(number * 1_000_000)
        self._task.numbers["suppressed:records"] = self.held
        self._task.numbers["suppressed:bytes"] = self.held_bytes


@dataclass(frozen=True)
class StoreStep:
    """A versioned store that is put to and asked, call by call."""

    name: str
    retention_ms: int

    def open(self, state: TaskState) -> Running:
        """The store over rows of this task."""
        return _Calls(VersionedStore(state, self.name, self.retention_ms))


class _Calls(Running):
    def __init__(self, store: VersionedStore) -> None:
        self._store = store

    def process(self, arrivals: Arrivals) -> list[Results]:
        records = arrivals.records
        answers = (operate_store(self._store, json.loads(value or b"")) for value in records.values)
        return [
            Results(
                CHANGED,
                np.arange(len(records)),
                records,
                np.full(len(records), None, object),
                objects([json.dumps(answer).encode() for answer in answers]),
                records.times_ms,
            )
        ]


@dataclass(frozen=True)
class PassStep:
    """A stream beside a global table that joins nothing passes."""

    name: str
    stream: int

    def open(self, state: TaskState) -> Running:  # noqa: ARG002
        """It remembers nothing."""
        return _Passing(self.stream)


class _Passing(Running):
    def __init__(self, stream: int) -> None:
        self._stream = stream

    def process(self, arrivals: Arrivals) -> list[Results]:
        causes = np.flatnonzero(arrivals.inputs == self._stream)
        return [Results.of(CHANGED, Changes.of_records(causes, arrivals.records.take(causes)))]


def _look_up(config: Vector) -> Topology:
    return LookUp(
        "join",
        _with_steps(_topic(config, "table"), config.get("table_ops", ()), "table"),
        stream=INPUTS["stream"],
        join=config["join"],
        grace_ms=config["grace_ms"],
        release=config.get("release", "stream-time"),
    )


def _sides(config: Vector) -> tuple[Step, Step]:
    left = _with_steps(_topic(config, "left"), config.get("left_ops", ()), "left")
    right = _with_steps(_topic(config, "right"), config.get("right_ops", ()), "right")
    return left, right


def _table_table(config: Vector) -> Topology:
    left, right = _sides(config)
    join = JoinStep("join", left, right, join_values, config["join"])
    return _with_steps(join, config.get("result_ops", ()), "result")


def _foreign_key(config: Vector) -> Topology:
    left, right = _sides(config)

    def foreign_key_of(_: bytes, value: bytes) -> bytes | None:
        return before_colon(value)

    join = ForeignKeyStep("join", left, right, foreign_key_of, join_values, config["join"])
    return _with_steps(join, config.get("result_ops", ()), "result")


def _table_ops(config: Vector) -> Topology:
    return _with_steps(_topic(config, "table"), config["ops"], "table")


def _aggregate(config: Vector) -> Topology:
    regroup = {"key": by_key, "value_before_colon": by_value_before_colon}[config["group_by"]]
    table = _with_steps(_topic(config, "table"), config.get("table_ops", ()), "table")
    return AggregateStep("aggregate", table, regroup, AGGREGATIONS[config["agg"]]())


def _store(config: Vector) -> Topology:
    return StoreStep("store", config["history_retention_ms"])


def _global(config: Vector) -> Topology:
    refuse_global(storage_of(config["table"]), "global-table")
    return PassStep("global-table", INPUTS["stream"])


BUILDERS: dict[str, Callable[[Vector], Topology]] = {
    "stream_table_join": _look_up,
    "table_table_join": _table_table,
    "fk_join": _foreign_key,
    "table_ops": _table_ops,
    "table_aggregate": _aggregate,
    "versioned_store": _store,
    "global_table": _global,
}
