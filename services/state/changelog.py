"""The changelog: every row of a partition again, in Kafka, commit by commit.

One changelog partition holds the rows of all stores of one partition. Integers are big-endian.

key                                  value
length of store's name (1) name key  the row; null where it was deleted
0x00 'stamp'                         who writes this changelog (see Stamp), JSON
0x00 'position'                      the source offset that this state has reached (8, signed), and
                                     the latest timestamp up to there (8, signed; -1 for none)
0x00 'cleaned'                       the offset of the last record cleaned up to there (8, signed);
                                     missing where there is none
0x00 'purged'                        records before this offset may be gone (8, signed), since none
                                     of them counts any more, see `purging`
0x00 'history'                       what `purging` goes by
0x00 'producer'                      the transactional id under which the owner writes, which its
                                     successor must end; missing where it has left in peace

The store without a name holds rows about the state as a whole. Its position ends a commit: the rows
since the last position belong together. A restore takes up whole commits alone. Rows behind the
last position come from an instance that died before its commit, and never count.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.record import Record, offset_of
from headrace.services.state.overlay import Overlay, StoreView

ABOUT = ""
"""The store that holds rows about the state as a whole."""
_STAMP_KEY = b"stamp"
_POSITION_KEY = b"position"
_CLEANED_KEY = b"cleaned"
_PURGED_KEY = b"purged"
_PRODUCER_KEY = b"producer"
POSITION = b"\x00" + _POSITION_KEY
"""The key of the record that ends a commit."""
_position = Struct(">qq")
_offset = Struct(">q")
ChangelogRecord = tuple[bytes, bytes | None]


class Stamp(NamedTuple):
    """The writer of a changelog and its options, since those decide what the rows mean."""

    layout: int
    pipeline: str
    topic: str
    """The topic that the records come from; the position is an offset in it."""
    operators: list[dict[str, Any]]
    topic_id: str | None = None
    """Which topic of that name it is; None where it was unknown, as in old stamps."""
    partitions: int | None = None
    """How many partitions that topic had."""
    spread_over: int | None = None
    """The number of partitions of the next topic, over which records are spread by id."""


_SINCE_LATER = tuple(Stamp._field_defaults)


def read_stamp(about: StoreView) -> Stamp | None:
    """Return the stamp of this state's writer, None where the state is new."""
    row = about.get_many([about.prefix + _STAMP_KEY])[0]
    if row is None:
        return None
    try:
        written = json.loads(row)
        # A later version may add fields; its layout tells that it is one.
        needed = {name: written[name] for name in Stamp._fields if name not in _SINCE_LATER}
        return Stamp(**needed, **{name: written.get(name) for name in _SINCE_LATER})
    except (ValueError, LookupError, TypeError) as damage:
        message = f"the stamp in the state cannot be read ({damage!r})"
        raise StateCorrupt(message) from damage


def put_stamp(about: StoreView, stamp: Stamp) -> None:
    """Put the stamp of the program that writes this state from now on."""
    row = json.dumps(stamp._asdict(), separators=(",", ":"), sort_keys=True).encode()
    about.put_many({about.prefix + _STAMP_KEY: row})


class Position(NamedTuple):
    """How far a state has read its source."""

    offset: int
    """The next source offset."""
    time_ms: int
    """The latest timestamp before it."""


def read_position(about: StoreView) -> Position | None:
    """Return how far this state has read its source, None where it is new."""
    found = _read_numbers(about, _POSITION_KEY, _position, "the position in the state")
    return None if found is None else Position(*found)


def offset_in(row: bytes) -> int:
    """Return the source offset in the value of a changelog's position."""
    offset: int = _position.unpack(row)[0]
    return offset


def put_position(about: StoreView, position: Position) -> None:
    """Put how far this state has read its source."""
    about.put_many({about.prefix + _POSITION_KEY: _position.pack(*position)})


def read_cleaned(about: StoreView) -> int | None:
    """Return the offset of the last cleaned record, None where the state knows none."""
    found = _read_numbers(about, _CLEANED_KEY, _offset, "what was cleaned last")
    return None if found is None else found[0]


def put_cleaned(about: StoreView, offset: int | None) -> None:
    """Put the offset of the last cleaned record; None where there is none."""
    row = None if offset is None else _offset.pack(offset)
    about.put_many({about.prefix + _CLEANED_KEY: row})


def read_purged(about: StoreView) -> int:
    """Return the offset before which the changelog's records may be gone; 0 where none may."""
    found = _read_numbers(about, _PURGED_KEY, _offset, "what is purged of the changelog")
    return 0 if found is None else found[0]


def put_purged(about: StoreView, offset: int) -> None:
    """Put the offset before which the changelog's records may be gone from the next commit on."""
    about.put_many({about.prefix + _PURGED_KEY: _offset.pack(offset)})


def read_producer(about: StoreView) -> str | None:
    """Return the transactional id under which this state's owner writes; None where it has left."""
    row = about.get_many([about.prefix + _PRODUCER_KEY])[0]
    try:
        return None if row is None else row.decode()
    except UnicodeDecodeError as damage:
        message = "the name of the owner's producer in the state cannot be read"
        raise StateCorrupt(message) from damage


def put_producer(about: StoreView, name: str | None) -> None:
    """Put the transactional id under which the owner writes; None where it leaves."""
    about.put_many({about.prefix + _PRODUCER_KEY: None if name is None else name.encode()})


def _read_numbers(
    about: StoreView, key: bytes, layout: Struct, what: str
) -> tuple[int, ...] | None:
    row = about.get_many([about.prefix + key])[0]
    if row is None:
        return None
    if len(row) != layout.size:
        message = f"{what} has {len(row)} bytes, not {layout.size}"
        raise StateCorrupt(message)
    return layout.unpack(row)


def is_about(record: ChangelogRecord) -> bool:
    """Return whether a record is about the state as a whole, and not a row of an operator."""
    return record[0].startswith(b"\x00")


def records_of(overlay: Overlay) -> list[ChangelogRecord]:
    """Return the records of a commit; the position comes last."""
    records: list[ChangelogRecord] = []
    last: list[ChangelogRecord] = []
    for store, length, rows in overlay.changed_stores():
        name = store.encode()
        prefix = bytes([len(name)]) + name
        of_store = [(prefix + key[length:], row) for key, row in rows.items()]
        if store == ABOUT:
            last = sorted(of_store, key=_is_position)
        else:
            records += of_store
    return records + last


def _is_position(record: ChangelogRecord) -> bool:
    return record[0] == POSITION


class _Prefixes(dict[bytes, bytes]):
    """Maps the start of a changelog's keys to the prefix of the same store's keys in a database."""

    def __init__(self, overlay: Overlay) -> None:
        super().__init__()
        self._overlay = overlay

    def __missing__(self, start: bytes) -> bytes:
        if len(start) < 1 + start[0]:
            message = f"a record of the changelog has a key of {len(start)} bytes, too few for it"
            raise StateCorrupt(message)
        try:
            name = start[1:].decode()
        except UnicodeDecodeError as damage:
            message = "a record of the changelog has a key that names no store"
            raise StateCorrupt(message) from damage
        prefix = self[start] = self._overlay.view(name).prefix
        return prefix


def _behind(record: Record) -> int:
    return offset_of(record) + 1


class Restoration:
    """Takes up a changelog into an overlay's store, whole commits alone.

    The rows of a commit wait for the record that ends it. But compaction removes the ends of all
    commits except the last, so the only end may stand behind millions of rows. If too many rows
    wait, the caller looks for the last end, and passes the offset before which everything counts.
    Rows before that offset are then taken up piece by piece, and the store is marked as being
    restored until the end is reached. To take up a row twice does no harm, so after an interruption
    the restoration goes on where the mark says.
    """

    def __init__(self, overlay: Overlay) -> None:
        """Go on where the overlay's store is."""
        self._overlay = overlay
        self._prefixes = _Prefixes(overlay)
        self._open: dict[bytes, bytes | None] = {}
        self._open_bytes = 0
        self._reached = reached(overlay)
        self._whole_at = overlay.position(RESTORED_AT) or 0
        self._is_marked = is_being_restored(overlay)
        self.restored = 0
        """The number of records taken up."""

    def take(self, records: Iterable[Record], counts_before: int = 0) -> int:
        """Take the next records of the changelog; everything before `counts_before` counts.

        Returns roughly how many bytes wait for the end of their commit.
        """
        records = list(records)
        keys = [record[0] or b"" for record in records]
        rows = [record[1] for record in records]
        self._whole_at = max(self._whole_at, counts_before)
        ended = len(keys) - keys[::-1].index(POSITION) if POSITION in keys else 0
        counted = max(ended, bisect_left(records, self._whole_at, key=offset_of))
        if counted:
            behind = _behind(records[counted - 1])
            is_whole = counted == ended and behind >= self._whole_at
            self._whole_at = max(self._whole_at, behind)
            self._take_up(keys[:counted], rows[:counted], records, is_whole=is_whole)
            self._reached = behind
        self._open.update(zip(keys[counted:], rows[counted:], strict=True))
        self._open_bytes += sum(map(_size_bytes, keys[counted:], rows[counted:]))
        return self._open_bytes

    def _take_up(
        self,
        keys: list[bytes],
        rows: list[bytes | None],
        records: Sequence[Record],
        *,
        is_whole: bool,
    ) -> None:
        """Take up waiting and new rows in pieces, each of which blocks other threads briefly."""
        waited = len(self._open)
        keys, rows = [*self._open, *keys], [*self._open.values(), *rows]
        self._open, self._open_bytes = {}, 0
        for start, end in _pieces(keys, rows):
            piece = self._as_stored(dict(zip(keys[start:end], rows[start:end], strict=True)))
            # For the waiting rows only the offset of the first is known, and not that of each row.
            position = self._reached if end <= waited else _behind(records[end - 1 - waited])
            self._write(piece, position, is_end=is_whole and end == len(keys))

    def _write(self, piece: dict[bytes, bytes | None], position: int, *, is_end: bool) -> None:
        if not is_end:
            positions: dict[str, int | None] = {RESTORING: position, RESTORED_AT: self._whole_at}
        elif self._is_marked:
            positions = {CHANGELOG: position, RESTORING: None, RESTORED_AT: None}
        else:
            positions = {CHANGELOG: position}
        self._overlay.take_up(piece, positions)
        self._is_marked = not is_end
        self.restored += len(piece)

    def _as_stored(self, rows: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        prefixes = self._prefixes
        try:
            return {
                prefixes[key[: 1 + key[0]]] + key[1 + key[0] :]: row for key, row in rows.items()
            }
        except IndexError:
            message = "a record of the changelog has an empty key, which names no store"
            raise StateCorrupt(message) from None

    def left_open(self) -> list[bytes]:
        """Return the keys whose newest record in the changelog never counted.

        Their rows must be written again. Otherwise compaction keeps the record that does not count
        and throws away the one that does.
        """
        return list(self._open)


def _size_bytes(key: bytes, row: bytes | None) -> int:
    """Estimate the memory that a row takes while it waits."""
    return _ROW_BYTES + len(key) + len(row or b"")


def _pieces(keys: Sequence[bytes], rows: Sequence[bytes | None]) -> Iterator[tuple[int, int]]:
    """Yield where pieces of bounded size begin and end."""
    start = size_bytes = 0
    for end, one_bytes in enumerate(map(_size_bytes, keys, rows), 1):
        size_bytes += one_bytes
        if size_bytes >= PIECE_BYTES or end == len(keys):
            yield start, end
            start, size_bytes = end, 0


PIECE_BYTES = 1 << 20
"""The size of one piece: a write of this size holds the interpreter for some milliseconds."""
_ROW_BYTES = 200
CHANGELOG = "changelog"
"""Names the position, in a store, of the first changelog record that is not part of it."""
RESTORING = "restoring"
"""Names the same position while a store is being restored, and is no state yet; else missing."""
RESTORED_AT = "restored-at"
"""Names the position at which a store being restored is whole: behind the end of a commit."""


def is_being_restored(overlay: Overlay) -> bool:
    """Return whether a restoration was cut off here: the rows are no state until it goes on."""
    return overlay.position(RESTORING) is not None


def reached(overlay: Overlay) -> int:
    """Return the first changelog record that a store must still read, whole or not."""
    restoring = overlay.position(RESTORING)
    return (overlay.position(CHANGELOG) or 0) if restoring is None else restoring


def rewrite(overlay: Overlay, keys: Iterable[bytes]) -> None:
    """Put rows again as they are, so that the next commit writes them to the changelog."""
    for key in keys:
        end = 1 + key[0]
        view = overlay.view(key[1:end].decode())
        whole = view.prefix + key[end:]
        view.put_many({whole: view.get_many([whole])[0]})
