"""A task's rows in Spark's state store.

PySpark's map of state waits for the answer to each call, and takes longer to encode a name than the
store to find the row: a micro-batch has two thousand calls. So this module writes the messages of
that map itself (`row_calls`), many behind one another, and reads the answers afterwards.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.operators.row_calls import RowCalls, packed, unpacked
from headrace.spark_jobs.seams import SCANS_IN_COLUMNS, state_socket_of
from headrace.spark_jobs.seams import state_messages as messages
from headrace.spark_jobs.versioned.table_rows import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.stateful_processor import MapState

NAME_SCHEMA = "name string"
ROW_SCHEMA = "row binary"
AT_ONCE = 64
"""How many calls wait for their answers at most: all that is on the way must fit the buffers of a
socket, or both ends would wait to be read."""
_SIZE = Struct("!i")
_NO_MORE = 2
"""The status of a scan that is at its end."""
_SCANS = count()
"""Numbers for the scans of a worker. None is used twice: Spark would go on with the scan that is at
its end, and find nothing."""


class StoredRows:
    """The rows of the task that Spark is processing; what changes is settled before the next."""

    def __init__(self, state: MapState, runs: MapState) -> None:
        """Take the map of all rows but those of runs, which no scan is to read, and theirs."""
        self._socket, name = state_socket_of(state)
        self._calls = RowCalls(name)
        self._run_calls = RowCalls(state_socket_of(runs)[1])
        self._unanswered = 0
        self._ahead: dict[str, bytes] = {}
        """Rows that a scan found beside those that it was to find, until they are read."""

    def get(self, name: str) -> bytes | None:
        """Return the row of that name, None if there is none."""
        return self.get_all([name])[0]

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names, None for a name without a row."""
        kept = self._kept(names)
        stored = iter(self._stored([name for name in names if name not in kept]))
        return [kept[name] if name in kept else next(stored) for name in names]

    def scan(self, names: Sequence[str]) -> list[bytes | None]:
        """Do as `get_all` by reading every row there is.

        Spark 4.0 sends many rows at once as columns. A single row it pickles, as a text with a
        character for each byte, which takes ten times as long. So what a scan finds beside these
        is kept until it is asked for.
        """
        if self._ahead or not SCANS_IN_COLUMNS:
            return self.get_all(names)
        self._ahead = self._all()
        kept = self._kept(names)
        return [*map(kept.get, names)]

    def _kept(self, names: Sequence[str]) -> dict[str, bytes]:
        """Take out what a scan has found of these rows."""
        ahead = self._ahead
        return {name: ahead.pop(name) for name in names if name in ahead}

    def _stored(self, names: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        with _asking():
            self._take_answers()
            for start in range(0, len(names), AT_ONCE):
                some = names[start : start + AT_ONCE]
                for name in some:
                    self._send_of(name, "getValue")
                self._socket.flush()
                found += [unpacked(self._answer()) for _ in some]
        return found

    def _all(self) -> dict[str, bytes]:
        number = next(_SCANS)
        with _asking():
            self._take_answers()
            # Both scans go through the store in its order. The first ends before the second begins:
            # they share the memory of a row, which each fills ahead of what it has sent.
            parts = self._parts("keys", b"names %d" % number)
            stored = [name for part in parts for name in part.to_pylist()]
            parts = self._parts("values", b"rows %d" % number)
            rows = [row for part in parts for row in part.to_pylist()]
            if len(rows) != len(stored):
                message = f"a scan found {len(stored)} names and {len(rows)} rows"
                raise RuntimeError(message)
        return dict(zip(stored, rows, strict=True))

    def put(self, name: str, row: bytes) -> None:
        """Set a row; `settle` tells whether the store took it."""
        self._change("updateValue", name, value=packed(row))

    def remove(self, name: str) -> None:
        """Forget a row; `settle` tells whether the store did."""
        self._change("removeKey", name)

    def settle(self) -> None:
        """Wait until the store has taken all changes; a task ends so, and the next has others."""
        self._ahead = {}
        with _asking():
            self._take_answers()

    def _change(self, call: str, name: str, **fields: bytes) -> None:
        self._ahead.pop(name, None)
        with _asking():
            self._send_of(name, call, **fields)
            self._unanswered += 1
            if self._unanswered >= AT_ONCE:
                self._take_answers()

    def _send_of(self, name: str, call: str, **fields: bytes) -> None:
        calls = self._run_calls if RUN in name else self._calls
        self._socket.write(calls.request(call, userKey=packed(name), **fields))

    def _send(self, call: str, **fields: bytes) -> None:
        self._socket.write(self._calls.request(call, **fields))

    def _take_answers(self) -> None:
        if self._unanswered:
            self._socket.flush()
        while self._unanswered:
            self._unanswered -= 1
            self._answer()

    def _answer(self) -> bytes:
        answer = self._response()
        _refuse_failed(answer)
        value: bytes = answer.value
        return value

    def _parts(self, call: str, scan: bytes) -> Iterator[pa.Array]:
        """Read a column of every row, part by part."""
        while True:
            self._send(call, iteratorId=scan)
            self._socket.flush()
            answer = self._response()
            if answer.statusCode == _NO_MORE:
                return
            _refuse_failed(answer)
            with pa.ipc.open_stream(self._socket) as reader:
                yield reader.read_all().column(0).combine_chunks()

    def _response(self) -> Any:
        (size,) = _SIZE.unpack(self._socket.read(_SIZE.size))
        answer = messages.StateResponse()
        answer.ParseFromString(self._socket.read(size))
        return answer


def _refuse_failed(answer: Any) -> None:
    if answer.statusCode:
        raise RuntimeError(answer.errorMessage)


@contextmanager
def _asking() -> Iterator[None]:
    """Turn an error of the store into one that is not the fault of any record."""
    try:
        yield
    except Exception as error:  # Spark's client raises many kinds, some of them private
        message = f"Spark's state store does not answer: {error}"
        raise StateUnavailable(message) from error
