"""States of every operator: what led to them, their rows as the sidecar writes them, and as files.

A file `sidecar/1-NAME.json` is a whole database of one partition: row keys and rows in hexadecimal.
Its number counts what was ever written for that state, and the highest is what is written today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.record import Headers, Record
from headrace.contracts.topology import with_names
from headrace.contracts.window import WindowBounds, window_header
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Stretch

FOLDER = Path(__file__).parent / "sidecar"
PIPELINE = "golden"
Rows = dict[bytes, bytes]
_ALL = (b"", b"\xff")
_START_MS = 1_700_000_000_000
_HEADERS: Headers = (("id", b"1"), ("\u00e9", None), ("id", b"\x00\xff"), ("empty", b""))
_BEFORE: Sequence[tuple[bytes | None, bytes | None, int, Headers, int | None]] = (
    (b"ada", b"1", 0, (("id", b"1"),), 0),
    (b"ada", b"22", 1_500, _HEADERS, 1),
    (b"bob", b"3", 3_000, (("id", b"1"),), None),
    (None, b"4", 3_500, (("id", b"2"),), 3),
    (b"", b"5", 3_500, (("id", b""),), 4),
    (b"bob", b"66", 3_700, (("id", b"2"),), 5),
    (b"\x00\xff", None, 3_600, (), 6),
    (b"ada", b"7", 2_000, (("id", b"3"),), 7),
    (b"eve", b"888", 7_000, (("id", b"4"),), 8),
)
_AFTER: Sequence[tuple[bytes | None, bytes | None, int, Headers, int | None]] = (
    (b"bob", b"9", 6_500, (("id", b"1"),), 9),
    (b"eve", b"10", 7_100, (("id", b"4"),), 10),
    (b"ada", b"11", 5_000, (("id", b"1"),), 11),
    (b"ada", b"12", 8_000, (("id", b"9"),), 12),
    (b"bob", None, 12_000, (), 13),
    (b"eve", b"14", 30_000, (("id", b"5"),), 14),
)


class State(NamedTuple):
    """A chain, what it has read, and what comes next."""

    policies: tuple[AnyOperator, ...]
    before: list[Record]
    after: list[Record]


def _records(
    of_what: Sequence[tuple[bytes | None, bytes | None, int, Headers, int | None]],
) -> list[Record]:
    return [
        Record(key, value, _START_MS + at_ms, headers, "clicks.\u00f6", 3, offset)
        for key, value, at_ms, headers, offset in of_what
    ]


def _in_windows(records: list[Record]) -> list[Record]:
    """The same records, each of them the result of a window."""
    results = []
    for record in records:
        start_ms = record.timestamp_ms // 4_000 * 4_000
        header = window_header(WindowBounds("tumbling", start_ms, start_ms + 4_000))
        results.append(record._replace(headers=(*record.headers, header)))
    return results


def _state(*policies: AnyOperator) -> State:
    return State(with_names(policies), _records(_BEFORE), _records(_AFTER))


def _aggregate(function: str, window: Window | None) -> State:
    return _state(AggregatePolicy(function=function, window=window))


def _final(buffer: BufferPolicy) -> State:
    window = Tumbling(size_ms=4_000, grace_ms=5_000)
    policy = SuppressPolicy(until="window-closes", window=window, buffer=buffer)
    before, after = _in_windows(_records(_BEFORE)), _in_windows(_records(_AFTER))
    return State(with_names((policy,)), before, after)


_SPILL = BufferPolicy(records=2, when_full="spill")
_BYTES = BufferPolicy(bytes=10_000, when_full="emit-early")
STATES: dict[str, State] = {
    "reorder": _state(ReorderPolicy(grace_ms=5_000)),
    "reorder-weighed": _state(ReorderPolicy(grace_ms=5_000, buffer=_BYTES)),
    "deduplicate-key": _state(DeduplicatePolicy(interval_ms=3_000)),
    "deduplicate-key-and-id": _state(
        DeduplicatePolicy(by="key+id", id="header.id", interval_ms=3_000)
    ),
    "deduplicate-id": _state(DeduplicatePolicy(by="id", id="header.id", interval_ms=3_000)),
    "distinct-tumbling": _state(DistinctPolicy(window=Tumbling(size_ms=4_000, grace_ms=5_000))),
    "distinct-session": _state(DistinctPolicy(window=Session(gap_ms=1_500, grace_ms=5_000))),
    "table": _state(TablePolicy()),
    "aggregate": _aggregate("sum", None),
    "aggregate-tumbling": _aggregate("count", Tumbling(size_ms=4_000, grace_ms=5_000)),
    "aggregate-hopping": _aggregate(
        "collect", Hopping(size_ms=4_000, advance_ms=2_000, grace_ms=5_000)
    ),
    "aggregate-session": _aggregate("last", Session(gap_ms=1_500, grace_ms=5_000)),
    "aggregate-sliding": _aggregate("max", Sliding(difference_ms=2_000, grace_ms=5_000)),
    "aggregate-unlimited": _aggregate("first", Unlimited(start_ms=_START_MS)),
    "suppress-final": _final(BufferPolicy()),
    "suppress-spilled": _final(_SPILL),
    # Behind a table an update has values that it replaces.
    "suppress-limit": _state(TablePolicy(), SuppressPolicy(until="time-limit", limit_ms=2_500)),
    "chain": _state(
        ReorderPolicy(grace_ms=2_000),
        DeduplicatePolicy(name="ids", store="known", interval_ms=1_000),
        AggregatePolicy(function="count"),
    ),
}


class Unswept(MemoryStore):
    """A store that keeps what was dropped: when operators sweep is not what they write."""

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """Set rows alone."""
        del drops
        super().write([], *rows)


def store_with(rows: Rows) -> MemoryStore:
    """A store with these rows."""
    store = Unswept()
    store.write([], dict(rows))
    return store


def rows_of(store: MemoryStore) -> Rows:
    """Every row of a store."""
    return dict(store.range(*_ALL))


class Service:
    """One life of a chain over a store."""

    def __init__(self, policies: Sequence[AnyOperator], store: MemoryStore) -> None:
        """Go on with what the store has."""
        self._overlay = Overlay(store, PIPELINE)
        self._chain = Chain(policies, self._overlay.view)

    def take(self, records: list[Record]) -> list[object]:
        """All that leaves for these records, read in batches of three, and a commit after each."""
        left: list[object] = []
        for first in range(0, len(records), 3):
            part = records[first : first + 3]
            step = self._chain.process(Batch.of(part))
            left += [step.forwarded, step.late, step.dead]
            self._chain.save()
            self._overlay.commit({"clicks": part[-1].offset or 0})
        return left


def written_today(name: str) -> Rows:
    """The rows of a state as the sidecar writes them now."""
    state = STATES[name]
    store = Unswept()
    Service(state.policies, store).take(state.before)
    return rows_of(store)


def golden_files(name: str) -> list[Path]:
    """All forms that were ever written for a state, the latest last."""
    numbered = [(int(path.stem.partition("-")[0]), path) for path in FOLDER.glob(f"*-{name}.json")]
    return [path for _, path in sorted(numbered) if path.stem.partition("-")[2] == name]


def read_rows(path: Path) -> Rows:
    """The rows in a golden file."""
    written: dict[str, str] = json.loads(path.read_text("utf-8"))
    return {bytes.fromhex(key): bytes.fromhex(row) for key, row in written.items()}


def write_rows(path: Path, rows: Rows) -> None:
    """Make a golden file."""
    written = {key.hex(): row.hex() for key, row in sorted(rows.items())}
    path.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
