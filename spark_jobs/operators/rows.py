"""A task's rows in Spark's state store.

PySpark's map of state waits for the answer to each call, and takes longer to encode a name than the
store to find the row: a micro-batch has two thousand calls. So this module writes the messages of
that map itself, many behind one another, and reads the answers afterwards.
"""

from __future__ import annotations

import pickle  # noqa: TID251 (the messages are PySpark's, and nothing of them is kept)
from contextlib import contextmanager
from io import BytesIO
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.seams import ROW_FUNCTIONS, SCANS_IN_COLUMNS, state_socket_of
from headrace.spark_jobs.seams import state_messages as messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.stateful_processor import MapState

NAME_SCHEMA = "name string"
ROW_SCHEMA = "row binary"
AT_ONCE = 64
"""How many calls wait for their answers at most: all that is on the way must fit the buffers of a
socket, or both ends would wait to be read."""
_HEAD, _SIZE = Struct("!ii"), Struct("!i")
_VERSION = 0
_NO_MORE = 2
"""The status of a scan that is at its end."""
_SCANS = count()
"""Numbers for the scans of a worker. None is used twice: Spark would go on with the scan that is at
its end, and find nothing."""


class StoredRows:
    """The rows of the task that Spark is processing."""

    def __init__(self, state: MapState) -> None:
        self._socket, self._name = state_socket_of(state)
        self._unanswered = 0

    def get(self, name: str) -> bytes | None:
        """Return the row of that name, None if there is none."""
        return self.get_all([name])[0]

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names, None for a name without a row."""
        found: list[bytes | None] = []
        with _asking():
            self._take_answers()
            for start in range(0, len(names), AT_ONCE):
                some = names[start : start + AT_ONCE]
                for name in some:
                    self._send(getValue=messages.GetValue(userKey=_packed(name)))
                self._socket.flush()
                found += [_unpacked(self._answer()) for _ in some]
        return found

    def scan(self, names: Sequence[str]) -> list[bytes | None]:
        """Do as `get_all` by reading every row there is.

        Spark 4.0 sends many rows at once as columns. A single row it pickles, as a text with a
        character for each byte, which takes ten times as long.
        """
        if not SCANS_IN_COLUMNS:
            return self.get_all(names)
        wanted = set(names)
        number = next(_SCANS)
        with _asking():
            self._take_answers()
            # Both scans go through the store in its order. The first ends before the second begins:
            # they share the memory of a row, which each fills ahead of what it has sent.
            parts = self._parts(keys=messages.Keys(iteratorId=f"names {number}"))
            stored = [name for part in parts for name in part.to_pylist()]
            found: dict[str, bytes] = {}
            first = 0
            for part in self._parts(values=messages.Values(iteratorId=f"rows {number}")):
                some = stored[first : first + len(part)]
                places = [place for place, name in enumerate(some) if name in wanted]
                rows = part.take(pa.array(places, pa.int64())).to_pylist()
                found.update(zip([some[place] for place in places], rows, strict=True))
                first += len(part)
            if first != len(stored):
                message = f"a scan found {len(stored)} names and {first} rows"
                raise RuntimeError(message)
        return [*map(found.get, names)]

    def put(self, name: str, row: bytes) -> None:
        """Set a row; `settle` tells whether the store took it."""
        update = messages.UpdateValue(userKey=_packed(name), value=_packed(row))
        self._change(updateValue=update)

    def remove(self, name: str) -> None:
        """Forget a row; `settle` tells whether the store did."""
        self._change(removeKey=messages.RemoveKey(userKey=_packed(name)))

    def settle(self) -> None:
        """Wait until the store has taken all changes."""
        with _asking():
            self._take_answers()

    def _change(self, **call: Any) -> None:
        with _asking():
            self._send(**call)
            self._unanswered += 1
            if self._unanswered >= AT_ONCE:
                self._take_answers()

    def _send(self, **call: Any) -> None:
        of_map = messages.MapStateCall(stateName=self._name, **call)
        request = messages.StateVariableRequest(mapStateCall=of_map)
        message = messages.StateRequest(stateVariableRequest=request).SerializeToString()
        self._socket.write(_HEAD.pack(_VERSION, len(message)))
        self._socket.write(message)

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

    def _parts(self, **call: Any) -> Iterator[pa.Array]:
        """Read a column of every row, part by part."""
        while True:
            self._send(**call)
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


class _Reader(pickle.Unpickler):
    """Reads a row of Spark's as its fields; PySpark would parse the schema beside each row."""

    def find_class(self, module: str, name: str) -> Any:
        return ROW_FUNCTIONS.get(name) or super().find_class(module, name)


def _refuse_failed(answer: Any) -> None:
    if answer.statusCode:
        raise RuntimeError(answer.errorMessage)


def _packed(field: str | bytes) -> bytes:
    """Encode a row of one field as PySpark does."""
    return pickle.dumps((field,), pickle.HIGHEST_PROTOCOL)


def _unpacked(row: bytes) -> bytes | None:
    if not row:
        return None
    (field,) = _Reader(BytesIO(row)).load()
    return bytes(field)


@contextmanager
def _asking() -> Iterator[None]:
    """Turn an error of the store into one that is not the fault of any record."""
    try:
        yield
    except Exception as error:  # Spark's client raises many kinds, some of them private
        message = f"Spark's state store does not answer: {error}"
        raise StateUnavailable(message) from error
