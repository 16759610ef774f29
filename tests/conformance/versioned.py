"""Runs the vectors of versioned tables and their joins against the pure code.

State is written out to bytes after every batch and read back by fresh objects, so a vector that
passes also says that a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from contracts.errors import TopologyRefused
from contracts.record import Headers, Record
from spark_jobs.versioned.aggregation import (
    Aggregated,
    Aggregation,
    count,
    read_long,
    reduce,
    sum_of,
)
from spark_jobs.versioned.arrival import Arrival, dropped_records, lateness, observe_lateness
from spark_jobs.versioned.foreign_key import ForeignKeyJoin
from spark_jobs.versioned.history import LATEST, REJECTED, Version, VersionedStore
from spark_jobs.versioned.state import MemoryRows, TaskState
from spark_jobs.versioned.stream_table import StreamTableJoin
from spark_jobs.versioned.table_table import TableTableJoin
from spark_jobs.versioned.tables import (
    Change,
    Derived,
    Filtered,
    Plain,
    Restored,
    Source,
    Storage,
    Table,
    Versioned,
    refuse_global,
)
from tests.conformance.suppressed import Suppressed, SuppressedState

Vector = dict[str, Any]
Output = dict[str, Any]
BUCKETS = 3
"""Few, so that keys meet in one bucket."""
INPUTS = {"table": 0, "left": 0, "stream": 1, "right": 1}


def run_vector(vector: Vector, batch_size: int) -> list[str]:
    """What differs from the vector, in words; nothing where it passes."""
    run = Run(vector["config"])
    want_error = vector.get("error")
    try:
        build = BUILDERS[vector["operator"]]
        build(run, vector["config"])
    except TopologyRefused as refused:
        if want_error is not None and want_error["phase"] in {"build", "start"}:
            return []
        return [f"building: expected to be accepted, got refused: {refused}"]
    if want_error is not None and want_error["phase"] in {"build", "start"}:
        return [f"building: expected to be refused ({want_error['message']}), got accepted"]
    trace = vector.get("buffer_trace")
    disagreements: list[str] = []
    inputs = vector["input"]
    for start in range(0, len(inputs), batch_size):
        end = min(start + batch_size, len(inputs))
        run.state = TaskState(run.rows, BUCKETS)
        build(run, vector["config"])
        run.take(inputs[start:end], start)
        run.state.save()
        run.suppressed.save()
        if run.failed_at is not None:
            break
        if trace and [run.held, run.held_bytes] != trace[end - 1]:
            got = [run.held, run.held_bytes]
            disagreements.append(f"input {end - 1}: expected buffer {trace[end - 1]}, got {got}")
    disagreements += _compare_outputs(vector, run.outputs)
    disagreements += _compare_failure(want_error, run.failed_at)
    moves_clock = any("advance_wall_clock_ms" in each for each in inputs)
    return disagreements + _compare_metrics(vector, run, moves_clock=moves_clock)


class Run:
    """One vector on its way."""

    def __init__(self, config: Vector) -> None:
        self.config = config
        self.rows = MemoryRows()
        self.state = TaskState(self.rows, BUCKETS)
        self.process: Callable[[Sequence[Vector], int], None] = lambda _batch, _start: None
        self.outputs: list[Output] = []
        self.failed_at: int | None = None
        self.join: StreamTableJoin | None = None
        self.suppressed = SuppressedState()

    def take(self, batch: Sequence[Vector], start: int) -> None:
        """Process inputs, the first of which is number `start`."""
        self.process(batch, start)

    @property
    def held(self) -> int:
        """Records that wait, in the join or in suppress."""
        return self.suppressed.held if self.join is None else self.join.held.count

    @property
    def held_bytes(self) -> int:
        """What they weigh."""
        return self.suppressed.held_bytes if self.join is None else self.join.held.bytes

    def metrics(self) -> dict[str, float]:
        """Kafka Streams' metrics as they stand now."""
        late = lateness(self.state)
        measured = {
            "dropped_records_total": dropped_records(self.state),
            "record_lateness_avg": late.total_ms / late.records if late.records else 0,
            "record_lateness_max": late.max_ms,
        }
        return measured | self.suppressed.metrics()


def _arrivals(batch: Sequence[Vector]) -> tuple[list[Arrival], list[int]]:
    """The records of a batch, and the place of each of them in it."""
    places = [place for place, each in enumerate(batch) if "topic" in each]
    records = [_record(batch[place]) for place in places]
    return [Arrival(INPUTS[record.topic], record) for record in records], places


def _record(given: Vector) -> Record:
    headers = (given.get("headers") or {}).items()
    return Record(
        key=_encode(given["key"]),
        value=_encode(given["value"]),
        timestamp_ms=given["ts"],
        headers=tuple((name, _encode(value)) for name, value in headers),
        topic=given["topic"],
        partition=given.get("partition", 0),
        offset=given["offset"],
    )


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _output(cause: int, key: bytes | None, value: object, time_ms: int, headers: Headers) -> Output:
    output = {"after_input": cause, "key": _decode(key), "value": value, "ts": time_ms}
    if headers:
        output["headers"] = {name: _decode(each) for name, each in headers}
    return output


def _run_table(run: Run, table: Table, decode: Callable[[bytes], object] = bytes.decode) -> None:
    def process(batch: Sequence[Vector], start: int) -> None:
        arrivals, places = _arrivals(batch)
        for place, arrival in zip(places, arrivals, strict=True):
            observe_lateness(run.state, [arrival])
            for change in table.take(start + place, arrival):
                run.outputs.append(_changed(change, decode))
            if run.suppressed.failed:
                run.failed_at = start + place
                return

    run.process = process


def _changed(change: Change, decode: Callable[[bytes], object]) -> Output:
    value = None if change.new is None else decode(change.new)
    return _output(change.cause, change.key, value, change.timestamp_ms, change.record.headers)


def _storage(described: Vector | None) -> Storage | None:
    if described is None or described.get("materialized") is False:
        return None
    return Versioned(described["history_retention_ms"]) if described["versioned"] else Plain()


def _source(run: Run, topic: str) -> Table:
    return Source(run.state, topic, INPUTS[topic], _storage(run.config[topic]))


def _with_steps(run: Run, table: Table, steps: Iterable[Vector], prefix: str) -> Table:
    for number, step in enumerate(steps):
        table = _with_step(run, table, step, f"{prefix}-{number}-{step['op']}")
    return table


def _with_step(run: Run, table: Table, step: Vector, name: str) -> Table:
    storage = _storage(step.get("materialized"))
    match step["op"]:
        case "filter":
            kept = step["keep_prefix"].encode()
            return Filtered(
                run.state, name, table, lambda _, value: value.startswith(kept), storage
            )
        case "filter_not":
            gone = step["drop_prefix"].encode()
            return Filtered(
                run.state, name, table, lambda _, value: not value.startswith(gone), storage
            )
        case "map_values":
            suffix = step["suffix"].encode()
            return Derived(run.state, name, table, lambda _, value: value + suffix, storage)
        case "to_stream_to_table":
            return Restored(run.state, name, table, storage)
        case "suppress":
            return Suppressed(run.suppressed, name, table, step)
        case other:
            raise ValueError(other)


def _joined(left: bytes | None, right: bytes | None) -> bytes:
    return b"%s+%s" % (b"null" if left is None else left, b"null" if right is None else right)


def _before_colon(value: bytes) -> bytes | None:
    head, colon, _ = value.partition(b":")
    return head if colon else None


def _foreign_key(_: bytes, value: bytes) -> bytes | None:
    return _before_colon(value)


def _stream_table_join(run: Run, config: Vector) -> None:
    table = _with_steps(run, _source(run, "table"), config.get("table_ops", ()), "table")
    run.join = join = StreamTableJoin(
        run.state,
        "join",
        table,
        stream=INPUTS["stream"],
        join=config["join"],
        grace_ms=config["grace_ms"],
    )

    def process(batch: Sequence[Vector], start: int) -> None:
        arrivals, places = _arrivals(batch)
        observe_lateness(run.state, arrivals)
        matches = join.process(arrivals)
        columns = (matches.causes, matches.records, matches.table_values)
        for cause, record, value in zip(*columns, strict=True):
            joined = _decode(_joined(record.value, value))
            place = start + places[cause]
            time_ms, headers = record.timestamp_ms, record.headers
            run.outputs.append(_output(place, record.key, joined, time_ms, headers))

    run.process = process


def _table_table_join(run: Run, config: Vector) -> None:
    left = _with_steps(run, _source(run, "left"), config.get("left_ops", ()), "left")
    right = _with_steps(run, _source(run, "right"), config.get("right_ops", ()), "right")
    joined = TableTableJoin(run.state, "join", left, right, joiner=_joined, join=config["join"])
    _run_table(run, _with_steps(run, joined, config.get("result_ops", ()), "result"))


def _foreign_key_join(run: Run, config: Vector) -> None:
    left = _with_steps(run, _source(run, "left"), config.get("left_ops", ()), "left")
    right = _with_steps(run, _source(run, "right"), config.get("right_ops", ()), "right")
    joined = ForeignKeyJoin(
        run.state,
        "join",
        left,
        right,
        foreign_key_of=_foreign_key,
        joiner=_joined,
        join=config["join"],
    )
    _run_table(run, _with_steps(run, joined, config.get("result_ops", ()), "result"))


def _table_ops(run: Run, config: Vector) -> None:
    _run_table(run, _with_steps(run, _source(run, "table"), config["ops"], "table"))


def _by_key(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return key, value


def _by_value_before_colon(_: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    group = _before_colon(value)
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


def _table_aggregate(run: Run, config: Vector) -> None:
    regroup = {"key": _by_key, "value_before_colon": _by_value_before_colon}[config["group_by"]]
    table = _with_steps(run, _source(run, "table"), config.get("table_ops", ()), "table")
    aggregation = AGGREGATIONS[config["agg"]]()
    aggregated = Aggregated(run.state, "aggregate", table, regroup, aggregation)
    _run_table(run, aggregated, read_long if config["agg"] in {"count", "sum"} else bytes.decode)


def _versioned_store(run: Run, config: Vector) -> None:
    store = VersionedStore(run.state, "store", config["history_retention_ms"])

    def process(batch: Sequence[Vector], start: int) -> None:
        for place, operation in enumerate(batch):
            if "op" in operation:
                result = _operate(store, operation)
                run.outputs.append({"after_input": start + place, "result": result})

    run.process = process


def _operate(store: VersionedStore, operation: Vector) -> Output | None:
    key = operation["key"].encode()
    match operation["op"]:
        case "put":
            valid_to_ms = store.put(key, _encode(operation["value"]), operation["ts"])
            outcome = {LATEST: "latest", REJECTED: "rejected"}.get(valid_to_ms, "superseded")
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


def _global_table(run: Run, config: Vector) -> None:
    refuse_global(_storage(config["table"]), "global-table")

    def process(batch: Sequence[Vector], start: int) -> None:
        arrivals, places = _arrivals(batch)
        observe_lateness(run.state, [each for each in arrivals if each.input == INPUTS["stream"]])
        for place, (number, record) in zip(places, arrivals, strict=True):
            if number == INPUTS["stream"]:
                value, time_ms = _decode(record.value), record.timestamp_ms
                run.outputs.append(
                    _output(start + place, record.key, value, time_ms, record.headers)
                )

    run.process = process


BUILDERS: dict[str, Callable[[Run, Vector], None]] = {
    "stream_table_join": _stream_table_join,
    "table_table_join": _table_table_join,
    "fk_join": _foreign_key_join,
    "table_ops": _table_ops,
    "table_aggregate": _table_aggregate,
    "versioned_store": _versioned_store,
    "global_table": _global_table,
}


def _compare_outputs(vector: Vector, got: list[Output]) -> list[str]:
    disagreements: list[str] = []
    want = vector["output"]
    for number in sorted({each["after_input"] for each in (*want, *got)}, key=str):
        wanted = [each for each in want if each["after_input"] == number]
        came = [each for each in got if each["after_input"] == number]
        if wanted != came:
            disagreements.append(f"input {number}: expected {wanted}, got {came}")
    causes = [each["after_input"] for each in got]
    if causes != sorted(causes):
        disagreements.append(f"outputs: expected in the order of their causes, got {causes}")
    return disagreements


def _compare_failure(want: Vector | None, failed_at: int | None) -> list[str]:
    wanted = None if want is None else want["after_input"]
    if wanted == failed_at:
        return []
    return [f"failure: expected at input {wanted}, got at input {failed_at}"]


def _compare_metrics(vector: Vector, run: Run, *, moves_clock: bool) -> list[str]:
    got = run.metrics()
    disagreements: list[str] = []
    for name, wanted in (vector.get("metrics") or {}).items():
        if moves_clock and name.endswith("_avg"):
            continue
        if name not in got or abs(got[name] - wanted) > 1e-6:
            disagreements.append(f"after all: expected {name} {wanted}, got {got.get(name)}")
    return disagreements
