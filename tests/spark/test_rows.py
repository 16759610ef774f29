"""Rows in Spark's store: the messages are those of PySpark's own map, and many go at once."""

from __future__ import annotations

import pickle  # noqa: TID251 (the messages are PySpark's)
from io import BytesIO
from typing import Any

import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import (
    BinaryType,
    StringType,
    StructField,
    StructType,
    _create_row_inbound_converter,
    _parse_datatype_json_string,
)

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.operators.rows import AT_ONCE, StoredRows

_NAMES = StructType([StructField("name", StringType())])
_ROWS = StructType([StructField("row", BinaryType())])


class End:
    """The near end of a socket: it keeps what is sent, and has the answers."""

    def __init__(self, *answers: bytes, code: int = 0) -> None:
        told = BytesIO()
        for value in answers:
            answer = messages.StateResponse(statusCode=code, errorMessage="full", value=value)
            packed = answer.SerializeToString()
            told.write(len(packed).to_bytes(4) + packed)
        self.told = BytesIO(told.getvalue())
        self.sent = BytesIO()
        self.flushes = 0
        self.write = self.sent.write
        self.read = self.told.read

    def flush(self) -> None:
        """Count, for each call to the system costs."""
        self.flushes += 1


def _state(end: End, name: str = "rows") -> MapState:
    """Return PySpark's own map over such an end."""
    client = StatefulProcessorApiClient.__new__(StatefulProcessorApiClient)
    client.sockfile = end  # type: ignore[assignment] # (all that is used of a socket)
    client.pickleSer = CPickleSerializer()
    return MapState(MapStateClient(client, _NAMES, _ROWS), name)


def _rows(end: End) -> StoredRows:
    return StoredRows(_state(end), _state(end, "runs"))


class _Row:
    """A row as Spark's Java pickles it: its schema stands beside it, as JSON."""

    def __init__(self, row: bytes) -> None:
        self.row = row

    def __reduce__(self) -> Any:
        return _Converter(), (bytearray(self.row),)


class _Converter:
    def __reduce__(self) -> Any:
        return _create_row_inbound_converter, (_Schema(),)

    def __call__(self) -> None:
        """Be callable, as pickle wants it."""


class _Schema:
    def __reduce__(self) -> Any:
        return _parse_datatype_json_string, (_ROWS.json(),)


def test_messages_are_those_of_pyspark() -> None:
    theirs, ours = End(*[b""] * 5), End(*[b""] * 5)
    state, runs, rows = _state(theirs), _state(theirs, "runs"), _rows(ours)
    assert state.getValue(("a/1",)) is None
    state.updateValue(("a/2",), (b"\x00\xff",))
    state.removeKey(("a/3",))
    assert runs.getValue(("a:run:1/1",)) is None
    runs.updateValue(("a:run:1/2",), (b"run",))
    assert rows.get("a/1") is None
    rows.put("a/2", b"\x00\xff")
    rows.remove("a/3")
    assert rows.get("a:run:1/1") is None
    rows.put("a:run:1/2", b"run")
    rows.settle()
    assert ours.sent.getvalue() == theirs.sent.getvalue()


def test_a_row_is_read_as_pyspark_reads_it() -> None:
    packed = pickle.dumps(_Row(b"\x00\xff"))
    theirs = _state(End(packed)).getValue(("a/1",))
    assert theirs is not None
    assert bytes(theirs[0]) == b"\x00\xff"
    assert _rows(End(packed)).get("a/1") == b"\x00\xff"


def test_many_calls_are_sent_at_once() -> None:
    names = [f"a/{number}" for number in range(AT_ONCE + 1)]
    end = End(*[b""] * (2 * len(names)))
    rows = _rows(end)
    assert rows.get_all(names) == [None] * len(names)
    for name in names:
        rows.put(name, b"row")
    rows.settle()
    assert end.flushes == 4
    assert not end.told.read(), "all answers are read"


def test_a_change_that_the_store_refuses_is_no_record_s_fault() -> None:
    rows = _rows(End(b"", code=1))
    rows.put("a/1", b"row")
    with pytest.raises(StateUnavailable, match="full"):
        rows.settle()


def test_a_scan_that_the_store_refuses_is_no_record_s_fault() -> None:
    rows = _rows(End(b"", code=1))
    with pytest.raises(StateUnavailable, match="full"):
        rows.scan(["a/1"])
