"""Runs the vectors of versioned tables and their joins against the pure code.

State is written out to bytes after every batch and read back by fresh objects, so a vector that
passes also says that a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from headrace.contracts.errors import TopologyRefused
from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.aggregation import Aggregated
from headrace.spark_jobs.versioned.arrival import (
    Arrival,
    Arrivals,
    dropped_records,
    lateness,
    observe_lateness,
)
from headrace.spark_jobs.versioned.changes import AtOnce, Change
from headrace.spark_jobs.versioned.foreign_key import ForeignKeyJoin
from headrace.spark_jobs.versioned.history import LATEST, REJECTED, Version, VersionedStore
from headrace.spark_jobs.versioned.refusals import refuse_global
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import Matches, StreamTableJoin
from headrace.spark_jobs.versioned.table_table import TableTableJoin
from headrace.spark_jobs.versioned.tables import (
    Derived,
    Filtered,
    Plain,
    Restored,
    Source,
    Storage,
    Table,
    Versioned,
)
from headrace.spark_jobs.versioned.totals import Aggregation, count, reduce, sum_of
from tests.conformance.compare import Run, compare
from tests.conformance.suppressed import Suppressed, SuppressedState
from tests.conformance.vectors import Vector, bytes_of, is_record, record_of

Output = dict[str, Any]
BUCKETS = 3
"""Few, so that keys meet in one bucket."""
VALID_TO_OF_LATEST = -1
"""Kafka Streams' answer to a put of the latest version."""
INPUTS = {"table": 0, "left": 0, "stream": 1, "right": 1}


def run_vector(vector: Vector, batch_size: int) -> list[str]:
    """Yield the differences from the vector, in words."""
    topology = Topology(vector["config"])
    build = BUILDERS[vector["operator"]]
    run = topology.run
    try:
        build(topology, vector["config"])
    except TopologyRefused as refused:
        run.refused = str(refused)
        return compare(vector, run, batch_size)
    inputs = vector["input"]
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        topology.state = TaskState(topology.rows, BUCKETS)
        build(topology, vector["config"])
        topology.process(batch, start)
        topology.state.save()
        topology.suppressed.save()
        if run.failed_at is not None:
            break
        run.traces["buffer_trace", start + len(batch) - 1] = topology.held()
    run.metrics = topology.metrics()
    if vector["operator"] != "versioned_store":
        return compare(vector, run, batch_size)
    run.problems = other_results(vector["output"], run.outputs)
    run.outputs = []
    return compare(vector | {"output": []}, run, batch_size)


class Topology:
    """The operators of a vector, built anew for every batch over the same rows."""

    def __init__(self, config: Vector) -> None:
        self.config = config
        self.rows = MemoryRows()
        self.state = TaskState(self.rows, BUCKETS)
        self.process: Callable[[Sequence[Vector], int], None] = lambda _batch, _start: None
        """Takes inputs, and the number of the first of them."""
        self.run = Run()
        self.join: StreamTableJoin | None = None
        self.suppressed = SuppressedState()

    def held(self) -> list[int]:
        """How many records wait, in the join or in suppress, and what they weigh."""
        if self.join is None:
            return [self.suppressed.held, self.suppressed.held_bytes]
        return [self.join.held.count, self.join.held.bytes]

    def metrics(self) -> dict[str, float]:
        """Kafka Streams' metrics as they stand now."""
        late = lateness(self.state)
        measured = {
            "dropped_records_total": dropped_records(self.state),
            "record_lateness_avg": late.total_ms / late.records if late.records else 0,
            "record_lateness_max": late.max_ms,
        }
        return measured | self.suppressed.metrics()


def other_results(want: list[Output], got: list[Output]) -> list[str]:
    """Yield the differences for outputs that are no records."""
    pairs = zip_longest(want, got)
    return [f"expected {wanted}, got {came}" for wanted, came in pairs if wanted != came]


def _arrivals(batch: Sequence[Vector]) -> tuple[list[Arrival], list[int]]:
    """The records of a batch, and the place of each of them in it."""
    places = [place for place, each in enumerate(batch) if is_record(each)]
    records = [record_of(batch[place]) for place in places]
    return [Arrival(INPUTS[record.topic], record) for record in records], places


def _output(cause: int, key: bytes | None, value: bytes | None, like: Record) -> Output:
    return {
        "after_input": cause,
        "key": None if key is None else key.decode(),
        "value": value,
        "ts": like.timestamp_ms,
        "headers": {name: None if each is None else each.decode() for name, each in like.headers},
    }


def _run_table(topology: Topology, table: Table) -> None:
    """Take inputs one by one; a table that can takes several at once."""

    def emit(changes: Iterable[Change], places: Sequence[int]) -> None:
        for cause, key, new, _, time_ms, _, record in changes:
            like = record._replace(timestamp_ms=time_ms)
            topology.run.outputs.append(_output(places[cause], key, new, like))

    def process(batch: Sequence[Vector], start: int) -> None:
        arrivals, places = _arrivals(batch)
        places = [start + place for place in places]
        if len(arrivals) > 1 and isinstance(table, AtOnce):
            observe_lateness(topology.state, arrivals)
            emit(table.take_all(Arrivals.of(arrivals)).one_by_one(), places)
            return
        for number, arrival in enumerate(arrivals):
            observe_lateness(topology.state, [arrival])
            emit(table.take(number, arrival), places)
            if topology.suppressed.failed:
                topology.run.failed_at = places[number]
                return

    topology.process = process


def storage_of(described: Vector | None) -> Storage | None:
    """The store that a vector gives a table."""
    if described is None or described.get("materialized") is False:
        return None
    return Versioned(described["history_retention_ms"]) if described["versioned"] else Plain()


def _source(topology: Topology, topic: str) -> Table:
    return Source(topology.state, topic, INPUTS[topic], storage_of(topology.config[topic]))


def _with_steps(topology: Topology, table: Table, steps: Iterable[Vector], prefix: str) -> Table:
    for number, step in enumerate(steps):
        table = _with_step(topology, table, step, f"{prefix}-{number}-{step['op']}")
    return table


def _with_step(topology: Topology, table: Table, step: Vector, name: str) -> Table:
    storage = storage_of(step.get("materialized"))
    match step["op"]:
        case "filter":
            kept = step["keep_prefix"].encode()
            return Filtered(
                topology.state, name, table, lambda _, value: value.startswith(kept), storage
            )
        case "filter_not":
            gone = step["drop_prefix"].encode()
            return Filtered(
                topology.state, name, table, lambda _, value: not value.startswith(gone), storage
            )
        case "map_values":
            suffix = step["suffix"].encode()
            return Derived(topology.state, name, table, lambda _, value: value + suffix, storage)
        case "to_stream_to_table":
            return Restored(topology.state, name, table, storage)
        case "suppress":
            return Suppressed(topology.suppressed, name, table, step)
        case other:
            raise ValueError(other)


def join_values(left: bytes | None, right: bytes | None) -> bytes:
    """Both values, as the vectors join them."""
    return b"%s+%s" % (b"null" if left is None else left, b"null" if right is None else right)


def before_colon(value: bytes) -> bytes | None:
    """Return the text before the colon, the vectors' foreign key and group."""
    head, colon, _ = value.partition(b":")
    return head if colon else None


def _foreign_key(_: bytes, value: bytes) -> bytes | None:
    return before_colon(value)


def _stream_table_join(topology: Topology, config: Vector) -> None:
    table = _with_steps(topology, _source(topology, "table"), config.get("table_ops", ()), "table")
    topology.join = join = StreamTableJoin(
        topology.state,
        "join",
        table,
        stream=INPUTS["stream"],
        join=config["join"],
        grace_ms=config["grace_ms"],
        release=config.get("release", "stream-time"),
        corrects=config.get("corrections", False),
    )

    def joined(places: Sequence[int], matches: Matches) -> None:
        values = matches.table_values.to_pylist()
        columns = (matches.causes.tolist(), matches.records, values)
        rows = [(*row, b"") for row in zip(*columns, strict=True)]
        rows += [(*row, b"!") for row in matches.corrections]
        for cause, record, value, mark in sorted(rows, key=lambda row: row[0]):
            said = join_values(record.value, value) + mark
            topology.run.outputs.append(_output(places[cause], record.key, said, record))

    def process(batch: Sequence[Vector], start: int) -> None:
        """Kafka Streams knows no progress; our own scenarios have lines of it."""
        lines = [place for place, each in enumerate(batch) if "progress" in each]
        begin = 0
        for line in [*lines, len(batch)]:
            arrivals, places = _arrivals(batch[begin:line])
            observe_lateness(topology.state, arrivals)
            joined([start + begin + place for place in places], join.process(arrivals))
            if line < len(batch):
                joined([start + line], join.advance(batch[line]["progress"], 0))
            begin = line + 1

    topology.process = process


def _table_table_join(topology: Topology, config: Vector) -> None:
    left = _with_steps(topology, _source(topology, "left"), config.get("left_ops", ()), "left")
    right = _with_steps(topology, _source(topology, "right"), config.get("right_ops", ()), "right")
    joined = TableTableJoin(
        topology.state, "join", left, right, joiner=join_values, join=config["join"]
    )
    _run_table(topology, _with_steps(topology, joined, config.get("result_ops", ()), "result"))


def _foreign_key_join(topology: Topology, config: Vector) -> None:
    left = _with_steps(topology, _source(topology, "left"), config.get("left_ops", ()), "left")
    right = _with_steps(topology, _source(topology, "right"), config.get("right_ops", ()), "right")
    joined = ForeignKeyJoin(
        topology.state,
        "join",
        left,
        right,
        foreign_key_of=_foreign_key,
        joiner=join_values,
        join=config["join"],
    )
    _run_table(topology, _with_steps(topology, joined, config.get("result_ops", ()), "result"))


def _table_ops(topology: Topology, config: Vector) -> None:
    _run_table(topology, _with_steps(topology, _source(topology, "table"), config["ops"], "table"))


def by_key(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Groups of one row each."""
    return key, value


def by_value_before_colon(_: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Groups by what stands before the colon."""
    group = before_colon(value)
    return None if group is None else (group, value)


def _plus(total: bytes, value: bytes) -> bytes:
    return total + b"+" + value


def _minus(total: bytes, value: bytes) -> bytes:
    return total + b"-" + value


AGGREGATIONS: dict[str, Callable[[], Aggregation]] = {
    "count": count,
    "sum": lambda: sum_of(lambda value: int(value.partition(b":")[2])),
    "trace": lambda: reduce(_plus, _minus)._replace(initial=lambda: b"0"),
    "reduce": lambda: reduce(_plus, _minus),
}


def _table_aggregate(topology: Topology, config: Vector) -> None:
    regroup = {"key": by_key, "value_before_colon": by_value_before_colon}[config["group_by"]]
    table = _with_steps(topology, _source(topology, "table"), config.get("table_ops", ()), "table")
    aggregation = AGGREGATIONS[config["agg"]]()
    aggregated = Aggregated(topology.state, "aggregate", table, regroup, aggregation)
    _run_table(topology, aggregated)


def _versioned_store(topology: Topology, config: Vector) -> None:
    store = VersionedStore(topology.state, "store", config["history_retention_ms"])

    def process(batch: Sequence[Vector], start: int) -> None:
        for place, operation in enumerate(batch):
            if "op" in operation:
                result = operate_store(store, operation)
                topology.run.outputs.append({"after_input": start + place, "result": result})

    topology.process = process


def operate_store(store: VersionedStore, operation: Vector) -> Output | None:
    """One call of a store, and what it answers."""
    key = operation["key"].encode()
    match operation["op"]:
        case "put":
            valid_to_ms = store.put(key, bytes_of(operation["value"]), operation["ts"])
            if valid_to_ms == LATEST:
                return {"outcome": "latest", "valid_to": VALID_TO_OF_LATEST}
            outcome = "rejected" if valid_to_ms == REJECTED else "superseded"
            return {"outcome": outcome, "valid_to": valid_to_ms}
        case "get":
            return _version(store.latest(key))
        case "delete":
            return _version(store.delete(key, operation["ts"]))
        case "get_as_of":
            version = store.as_of(key, operation["ts"])
            return None if version is None else _told(version) | {"valid_to": version.valid_to_ms}
        case other:
            raise ValueError(other)


def _version(version: Version | None) -> Output | None:
    return None if version is None else _told(version)


def _told(version: Version) -> Output:
    return {"value": version.value.decode(), "valid_from": version.valid_from_ms}


def _global_table(topology: Topology, config: Vector) -> None:
    refuse_global(storage_of(config["table"]), "global-table")

    def process(batch: Sequence[Vector], start: int) -> None:
        arrivals, places = _arrivals(batch)
        observe_lateness(
            topology.state, [each for each in arrivals if each.input == INPUTS["stream"]]
        )
        for place, (number, record) in zip(places, arrivals, strict=True):
            if number == INPUTS["stream"]:
                output = _output(start + place, record.key, record.value, record)
                topology.run.outputs.append(output)

    topology.process = process


BUILDERS: dict[str, Callable[[Topology, Vector], None]] = {
    "stream_table_join": _stream_table_join,
    "table_table_join": _table_table_join,
    "fk_join": _foreign_key_join,
    "table_ops": _table_ops,
    "table_aggregate": _table_aggregate,
    "versioned_store": _versioned_store,
    "global_table": _global_table,
}
