"""The oracles say what the vectors say, so what equals an oracle is what Kafka Streams does."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.contracts.record import Record
from tests.conformance.vectors import Vector, load
from tests.conformance.versioned import VALID_TO_OF_LATEST
from tests.oracles.versioned import LAST, REFUSED, Arrived, History, stream_table

STORES = [vector for vector in load() if vector["operator"] == "versioned_store"]
JOINS = [
    vector
    for vector in load()
    if vector["operator"] == "stream_table_join"
    and vector["config"]["table"]["versioned"]
    and not vector["config"].get("table_ops")
    and "error" not in vector
]


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("vector", STORES, ids=[vector["name"] for vector in STORES])
def test_the_oracle_of_the_store(vector: Vector) -> None:
    history = History(vector["config"]["history_retention_ms"])
    results = [_result(history, operation) for operation in vector["input"]]
    assert results == [output["result"] for output in vector["output"]]


def _result(history: History, operation: dict[str, Any]) -> dict[str, Any] | None:
    key, time_ms = operation["key"].encode(), operation.get("ts", 0)
    if operation["op"] == "put":
        valid_to_ms = history.put(key, _encode(operation["value"]), time_ms)
        if valid_to_ms == LAST:
            return {"outcome": "latest", "valid_to": VALID_TO_OF_LATEST}
        outcome = "rejected" if valid_to_ms == REFUSED else "superseded"
        return {"outcome": outcome, "valid_to": valid_to_ms}
    if operation["op"] == "get":
        held: tuple[Any, ...] | None = history.latest(key)
    elif operation["op"] == "delete":
        held = history.delete(key, time_ms)
    else:
        held = history.as_of(key, time_ms)
    if held is None:
        return None
    told = {"value": held[0].decode(), "valid_from": held[1]}
    return told | {"valid_to": held[2]} if operation["op"] == "get_as_of" else told


@pytest.mark.parametrize("vector", JOINS, ids=[vector["name"] for vector in JOINS])
def test_the_oracle_of_the_stream_table_join(vector: Vector) -> None:
    config = vector["config"]
    arrived = [
        Arrived(each["topic"] == "table", _record(each)) for each in vector["input"] if "ts" in each
    ]
    joined, _ = stream_table(
        arrived,
        left=config["join"] == "left",
        grace_ms=config["grace_ms"],
        retention_ms=config["table"]["history_retention_ms"],
    )
    got = [
        (cause, record.key, (record.value or b"") + b"+" + (value or b"null"), record.timestamp_ms)
        for cause, record, value in joined
    ]
    want = [
        (each["after_input"], _encode(each["key"]), _encode(each["value"]), each["ts"])
        for each in vector["output"]
    ]
    assert got == want


def _record(each: dict[str, Any]) -> Record:
    key, value = _encode(each["key"]), _encode(each["value"])
    return Record(key, value, each["ts"], (), each["topic"], 0, each["offset"])
