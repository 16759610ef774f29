"""The results of versioned tables and their joins, recomputed from all that ever came.

The oracle forgets, buckets and batches nothing, so a version that was cleaned too early, a look-up
in the wrong place and state that did not survive a batch show as differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.contracts.record import Record

Row = tuple[bytes, int]
"""A value and its timestamp."""
REFUSED, LAST = -(1 << 63), 1 - (1 << 63)
"""Answers to a point that is refused, and to one behind which there is none."""


class History:
    """Every point ever accepted, by key and timestamp (rules E1 to E5)."""

    def __init__(self, retention_ms: int) -> None:
        self.points: dict[bytes, dict[int, bytes | None]] = {}
        self.retention_ms = retention_ms
        self.time_ms = -1

    def put(self, key: bytes, value: bytes | None, time_ms: int) -> int:
        """The next point's time, or that there is none, or that this one is refused."""
        if time_ms < self.time_ms - self.retention_ms:
            return REFUSED
        self.time_ms = max(self.time_ms, time_ms)
        self.points.setdefault(key, {})[time_ms] = value
        return min((point for point in self.points[key] if point > time_ms), default=LAST)

    def latest(self, key: bytes) -> Row | None:
        """The value of the highest point."""
        points = self.points.get(key, {})
        value = points[max(points)] if points else None
        return None if value is None else (value, max(points))

    def as_of(self, key: bytes, time_ms: int) -> tuple[bytes, int, int | None] | None:
        """A value, and the times from which and until which it held."""
        points = self.points.get(key, {})
        before = [point for point in points if point <= time_ms]
        if not before:
            return None
        if time_ms < self.time_ms - self.retention_ms and max(before) != max(points):
            return None
        value = points[max(before)]
        until_ms = min((point for point in points if point > time_ms), default=None)
        return None if value is None else (value, max(before), until_ms)

    def delete(self, key: bytes, time_ms: int) -> tuple[bytes, int, int | None] | None:
        """The value that held until now."""
        held = self.as_of(key, time_ms)
        return None if self.put(key, None, time_ms) == REFUSED else held


class Arrived(NamedTuple):
    """One record and the side it came by."""

    is_table: bool
    record: Record


def stream_table(
    arrived: Iterable[Arrived], *, left: bool, grace_ms: int | None, retention_ms: int
) -> tuple[list[tuple[int, Record, bytes | None]], list[Record]]:
    """Joined records with the arrival that let them go, and what still waits (rules D1 to D8)."""
    table = History(retention_ms)
    waiting: list[tuple[int, Record]] = []
    joined: list[tuple[int, Record, bytes | None]] = []
    time_ms, number = -1, 0

    def join(cause: int, record: Record) -> None:
        held = None if record.key is None else table.as_of(record.key, record.timestamp_ms)
        if held or left:
            joined.append((cause, record, held[0] if held else None))

    for cause, (is_table, record) in enumerate(arrived):
        if is_table:
            if record.key is not None:
                table.put(record.key, record.value, record.timestamp_ms)
        elif record.value is None or (record.key is None and not left):
            continue
        elif grace_ms is None or record.key is None or record.timestamp_ms < time_ms - grace_ms:
            join(cause, record)
        else:
            time_ms, number = max(time_ms, record.timestamp_ms), number + 1
            waiting.append((number, record))
            due = [row for row in waiting if row[1].timestamp_ms <= time_ms - grace_ms]
            waiting = [row for row in waiting if row not in due]
            for _, leaving in sorted(due, key=_place):
                join(cause, leaving)
    return joined, [record for _, record in waiting]


def corrected(
    arrived: Sequence[Arrived], *, grace_ms: int | None, retention_ms: int
) -> list[tuple[int, Record, bytes | None]]:
    """Yield the corrections that each record of the table causes, by their time."""
    leaving, _ = stream_table(arrived, left=True, grace_ms=grace_ms, retention_ms=retention_ms)
    table = History(retention_ms)
    found: list[tuple[int, Record, bytes | None]] = []
    for cause, (is_table, version) in enumerate(arrived):
        if not is_table or version.key is None:
            continue
        gone = [
            record
            for left_by, record, _ in leaving
            if left_by < cause
            and record.key == version.key
            and record.timestamp_ms >= version.timestamp_ms
        ]
        before = [table.as_of(version.key, record.timestamp_ms) for record in gone]
        table.put(version.key, version.value, version.timestamp_ms)
        now = [table.as_of(version.key, record.timestamp_ms) for record in gone]
        changed = [
            (cause, record, new[0] if new else None)
            for record, old, new in zip(gone, before, now, strict=True)
            if (old and old[0]) != (new and new[0])
        ]
        found += sorted(changed, key=lambda row: row[1].timestamp_ms)
    return found


def _place(row: tuple[int, Record]) -> tuple[int, bytes]:
    return row[1].timestamp_ms, (row[1].key or b"") + row[0].to_bytes(4, "big")


def joined_on_time(table: Iterable[Record], record: Record) -> bytes | None:
    """Return the version that a stream record meets when all earlier ones have come."""
    fits = [
        row for row in table if row.key == record.key and row.timestamp_ms <= record.timestamp_ms
    ]
    return max(fits, key=lambda row: (row.timestamp_ms, row.offset or 0)).value if fits else None


def latest_rows(records: Iterable[Record], retention_ms: int | None) -> dict[bytes, bytes]:
    """The table that records make: by time where it has a retention, else by arrival."""
    history = History(retention_ms or 0)
    plain: dict[bytes, bytes | None] = {}
    for record in records:
        if record.key is not None:
            history.put(record.key, record.value, record.timestamp_ms)
            plain[record.key] = record.value
    if retention_ms is None:
        return {key: value for key, value in plain.items() if value is not None}
    rows = {key: history.latest(key) for key in history.points}
    return {key: row[0] for key, row in rows.items() if row is not None}


class Plainly:
    """The last point of each key by arrival."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Row] = {}

    def put(self, key: bytes, value: bytes | None, time_ms: int) -> int:
        """No point is later, and none is refused."""
        self._rows.pop(key, None)
        if value is not None:
            self._rows[key] = value, time_ms
        return LAST

    def latest(self, key: bytes) -> Row | None:
        """The last point's value."""
        return self._rows.get(key)


class Joined(NamedTuple):
    """A change of the join of two tables, with the value that it replaces."""

    cause: int
    key: bytes
    new: bytes | None
    old: bytes | None
    time_ms: int


def joined_tables(
    arrived: Iterable[tuple[int, Record]],
    inputs: tuple[int, int],
    tables: tuple[History | Plainly, History | Plainly],
    joiner: Callable[[bytes | None, bytes | None], bytes | None],
    join: str,
) -> Iterator[Joined]:
    """Yield the changes of the join of two tables that are read from these inputs (rule F3)."""

    def joined(left: Row | None, right: Row | None) -> bytes | None:
        stands = {"inner": left and right, "left": left, "outer": left or right}[join]
        return joiner(left and left[0], right and right[0]) if stands else None

    for cause, (number, record) in enumerate(arrived):
        for own, table in enumerate(tables):
            if number != inputs[own] or record.key is None:
                continue
            before = [each.latest(record.key) for each in tables]
            if table.put(record.key, record.value, record.timestamp_ms) != LAST:
                continue
            now = [each.latest(record.key) for each in tables]
            met = now[1 - own]
            may_be_alone = join == "outer" or (join, own) == ("left", 0)
            if met or (may_be_alone and (before[own] or now[own])):
                time_ms = max(record.timestamp_ms, met[1] if met else record.timestamp_ms)
                yield Joined(cause, record.key, joined(*now), joined(*before), time_ms)


def met_within(
    lefts: Sequence[Record], rights: Sequence[Record], within_ms: int, join: str
) -> list[tuple[bytes | None, bytes | None, bytes | None, int]]:
    """The key, both values and the later time of every pair, and of each record alone.

    A record without a key is near none.
    """

    def near(one: Record, other: Record) -> bool:
        is_one_key = one.key is not None and one.key == other.key
        return is_one_key and abs(one.timestamp_ms - other.timestamp_ms) <= within_ms

    rows = [
        (left.key, left.value, right.value, max(left.timestamp_ms, right.timestamp_ms))
        for left in lefts
        for right in rights
        if near(left, right)
    ]
    if join != "inner":
        alone = [left for left in lefts if not any(near(left, right) for right in rights)]
        rows += [(left.key, left.value, None, left.timestamp_ms) for left in alone]
    if join == "outer":
        alone = [right for right in rights if not any(near(left, right) for left in lefts)]
        rows += [(right.key, None, right.value, right.timestamp_ms) for right in alone]
    return rows
