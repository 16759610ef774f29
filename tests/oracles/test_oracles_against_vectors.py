"""The oracles agree with every public conformance vector, so they can be trusted as references."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.contracts.policies import Hopping, Session, Sliding, Tumbling, Window
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, windowed_key
from tests.conformance.vectors import load
from tests.oracles.aggregate import Function, aggregate
from tests.oracles.deduplicate import deduplicate
from tests.oracles.distinct import distinct
from tests.oracles.expected import Expected, Output, Update
from tests.oracles.suppress import Bounds, until_time_limit, until_window_closes
from tests.oracles.table import table

Vector = dict[str, Any]


def _vectors(area: str, operator: str | None = None) -> list[Any]:
    chosen = [v for v in load(area=area) if operator in {None, v["operator"]}]
    return [pytest.param(vector, id=vector["name"]) for vector in chosen]


@pytest.mark.parametrize("vector", _vectors("dedup", "dedup"))
def test_deduplicate(vector: Vector) -> None:
    """Outputs, and how many entries are alive after each input."""
    config = vector["config"]
    inputs = vector["input"]
    partitions = sorted({record.get("partition", 0) for record in inputs})
    groups = [partitions] if config["by"] == "id" else [[partition] for partition in partitions]
    outputs: list[tuple[Any, ...]] = []
    alive: list[list[int]] = []
    for group in groups:
        indexes = [i for i, one in enumerate(inputs) if one.get("partition", 0) in group]
        records = [_record(inputs[i]) for i in indexes]
        expected = deduplicate(
            records, config["interval_ms"], lambda record: _identity(record, config)
        )
        alive.append([entries for entries, _ in expected.held])
        outputs += [_shown(out._replace(cause=indexes[out.cause])) for out in expected.outputs]
    assert sorted(outputs) == sorted(_wanted(vector))
    if len(groups) == 1:
        assert outputs == _wanted(vector)
        assert alive[0] == vector["store_trace"]


@pytest.mark.parametrize("vector", _vectors("dedup", "distinct"))
def test_distinct(vector: Vector) -> None:
    """The first record of each window, with its window."""
    window = _window(vector["config"]["window"])
    assert isinstance(window, Tumbling | Session)
    expected = distinct([_record(one) for one in vector["input"]], window)
    assert [_shown(output) for output in expected.outputs] == _wanted(vector)


@pytest.mark.parametrize("vector", _vectors("suppress") + _vectors("windowed_aggregate"))
def test_aggregate_and_suppress(vector: Vector) -> None:
    """Outputs, failures, entries and bytes held, and windows refused."""
    config = vector["config"]
    indexes = [i for i, one in enumerate(vector["input"]) if "ts" in one]
    records = [_record(vector["input"][i]) for i in indexes]
    upstream = _upstream(config, records)
    updates = [_update(records, output) for output in upstream.outputs]
    expected = _suppressed(config, updates) if config["suppress"] else upstream
    outputs = [_shown(out._replace(cause=indexes[out.cause])) for out in expected.outputs]
    assert outputs == _wanted(vector)
    failure = None if expected.failure is None else indexes[expected.failure]
    assert failure == vector.get("error", {}).get("after_input")
    if config["suppress"]:
        causes = [indexes[update.cause] for update in updates[: len(expected.held)]]
        assert _trace(causes, expected.held, len(vector["buffer_trace"])) == vector["buffer_trace"]
    if failure is None and config.get("window"):
        nulls = sum(_is_dropped_null(record, config) for record in records)
        assert expected_drops(vector) in {None, upstream.refused + nulls}


def expected_drops(vector: Vector) -> int | None:
    """Kafka Streams' count of dropped records, None where the vector does not list it."""
    drops: int | None = vector.get("metrics", {}).get("dropped_records_total")
    return drops


def _is_dropped_null(record: Record, config: Vector) -> bool:
    return record.key is None or (config["window"]["type"] == "sliding" and record.value is None)


def _trace(causes: list[int], held: list[tuple[int, int]], length: int) -> list[list[int]]:
    """Return the held records after each input; an input that reached nothing changes nothing."""
    latest = [0, 0]
    after = dict(zip(causes, held, strict=True))
    trace: list[list[int]] = []
    for index in range(length):
        latest = list(after.get(index, latest))
        trace.append(latest)
    return trace


def _upstream(config: Vector, records: list[Record]) -> Expected:
    if config["source"] == "table":
        return table(records)
    function = _COUNT if config.get("agg", "count") == "count" else _CONCAT
    window = _window(config["window"]) if "window" in config else None
    return aggregate(records, function, window)


def _update(records: list[Record], output: Output) -> Update:
    key = output.key or b""
    return Update(
        output.cause,
        records[output.cause]._replace(
            key=windowed_key(key, output.window) if output.window else key,
            value=output.value,
            timestamp_ms=output.timestamp_ms,
        ),
        output.old,
        output.window,
    )


def _suppressed(config: Vector, updates: list[Update]) -> Expected:
    suppress = config["suppress"]
    buffer = suppress["buffer"]
    bounds = Bounds(buffer["max_records"], buffer["max_bytes"], buffer["when_full"] == "emit")
    if suppress["mode"] == "time_limit":
        return until_time_limit(updates, suppress["time_limit_ms"], bounds)
    return until_window_closes(updates, _window(config["window"]), bounds)


def _window(config: Vector) -> Window:
    grace_ms = config["grace_ms"]
    if config["type"] == "tumbling":
        return Tumbling(size_ms=config["size_ms"], grace_ms=grace_ms)
    if config["type"] == "hopping":
        return Hopping(
            size_ms=config["size_ms"], advance_ms=config["advance_ms"], grace_ms=grace_ms
        )
    if config["type"] == "session":
        return Session(gap_ms=config["gap_ms"], grace_ms=grace_ms)
    return Sliding(difference_ms=config["time_difference_ms"], grace_ms=grace_ms)


_COUNT = Function(
    initial=lambda: 0,
    add=lambda count, _: count + 1,
    merge=lambda one, other: one + other,
    show=lambda count: count.to_bytes(8, "big"),
)
_CONCAT = Function(
    initial=lambda: b"",
    add=lambda text, record: text + (b"null" if record.value is None else record.value),
    merge=lambda one, other: one + other,
    show=lambda text: text,
)


def _identity(record: Record, config: Vector) -> object:
    if config["by"] == "key":
        return record.key
    selector = config["id_selector"]
    identity: bytes | None = b"constant"
    if selector == "value":
        identity = record.value
    elif selector == "value_before_colon":
        text = record.value or b""
        identity = text.partition(b":")[0] if b":" in text else None
    if config["by"] == "id":
        return identity
    return None if record.key is None or identity is None else (record.key, identity)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record(one: Vector) -> Record:
    return Record(
        _bytes(one["key"]),
        _bytes(one["value"]),
        one["ts"],
        _headers(one),
        one["topic"],
        one.get("partition", 0),
        one["offset"],
    )


def _headers(one: Vector) -> tuple[tuple[str, bytes | None], ...]:
    """In order of their names, for the vectors say nothing about their order."""
    return tuple((name, _bytes(value)) for name, value in sorted(one.get("headers", {}).items()))


def _shown(output: Output) -> tuple[Any, ...]:
    key = windowed_key(output.key or b"", output.window) if output.window else output.key
    return (output.cause, repr(key), repr(output.value), output.timestamp_ms, output.headers)


def _wanted(vector: Vector) -> list[tuple[Any, ...]]:
    """The vector's outputs, with keys and values as bytes."""
    return [
        (
            one["after_input"],
            repr(_wanted_key(one["key"], vector["config"])),
            repr(one["value"].to_bytes(8, "big"))
            if isinstance(one["value"], int)
            else repr(_bytes(one["value"])),
            one["ts"],
            _headers(one),
        )
        for one in vector["output"]
    ]


def _wanted_key(key: Any, config: Vector) -> bytes | None:
    if not isinstance(key, dict):
        return _bytes(key)
    bounds = WindowBounds(config["window"]["type"], key["start"], key["end"])
    return windowed_key(key["key"].encode(), bounds)
