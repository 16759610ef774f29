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

The store without a name holds what is about the state as a whole. Its position ends a commit: the
rows since the last one belong together. Whoever restores takes up whole commits alone; rows behind
the last position were sent by somebody who did not live to finish, and never count.
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
"""The store that holds what is about the state as a whole."""
_STAMP_KEY = b"stamp"
_POSITION_KEY = b"position"
_CLEANED_KEY = b"cleaned"
_PURGED_KEY = b"purged"
POSITION = b"\x00" + _POSITION_KEY
"""The key of the record that ends a commit."""
_position = Struct(">qq")
_offset = Struct(">q")
ChangelogRecord = tuple[bytes, bytes | None]


class Stamp(NamedTuple):
    """Who writes a changelog: with other options the same rows would mean something else."""

    layout: int
    pipeline: str
    topic: str
    """Where the records come from whose offset is the position."""
    operators: list[dict[str, Any]]
    topic_id: str | None = None
    """Which topic of that name it is; None where nobody knew, as in old stamps."""
    partitions: int | None = None
    """How many that topic had."""
    spread_over: int | None = None
    """Over how many partitions of the next topic records are spread by id."""


_SINCE_LATER = tuple(Stamp._field_defaults)


def read_stamp(about: StoreView) -> Stamp | None:
    """Who wrote this state, None where it is new."""
    row = about.get_many([about.prefix + _STAMP_KEY])[0]
    if row is None:
        return None
    try:
        written = json.loads(row)
        # A later version may say more; its layout tells that it is one.
        needed = {name: written[name] for name in Stamp._fields if name not in _SINCE_LATER}
        return Stamp(**needed, **{name: written.get(name) for name in _SINCE_LATER})
    except (ValueError, LookupError, TypeError) as damage:
        message = f"the stamp in the state cannot be read ({damage!r})"
        raise StateCorrupt(message) from damage


def put_stamp(about: StoreView, stamp: Stamp) -> None:
    """Say who writes this state from now on."""
    row = json.dumps(stamp._asdict(), separators=(",", ":"), sort_keys=True).encode()
    about.put_many({about.prefix + _STAMP_KEY: row})


class Position(NamedTuple):
    """What a state has reached."""

    offset: int
    """The next source offset."""
    time_ms: int
    """The latest timestamp before it."""


def read_position(about: StoreView) -> Position | None:
    """What this state has reached, None where it is new."""
    found = _read_numbers(about, _POSITION_KEY, _position, "the position in the state")
    return None if found is None else Position(*found)


def offset_in(row: bytes) -> int:
    """The source offset in the value of a changelog's position."""
    offset: int = _position.unpack(row)[0]
    return offset


def put_position(about: StoreView, position: Position) -> None:
    """Say what this state has reached."""
    about.put_many({about.prefix + _POSITION_KEY: _position.pack(*position)})


def read_cleaned(about: StoreView) -> int | None:
    """The offset of the last cleaned record that this state knows of, None where it knows none."""
    found = _read_numbers(about, _CLEANED_KEY, _offset, "what was cleaned last")
    return None if found is None else found[0]


def put_cleaned(about: StoreView, offset: int) -> None:
    """Say which cleaned record is the last."""
    about.put_many({about.prefix + _CLEANED_KEY: _offset.pack(offset)})


def read_purged(about: StoreView) -> int:
    """The offset before which the changelog's records may be gone; 0 where none may."""
    found = _read_numbers(about, _PURGED_KEY, _offset, "what is purged of the changelog")
    return 0 if found is None else found[0]


def put_purged(about: StoreView, offset: int) -> None:
    """Say that the changelog's records before an offset may be gone from the next commit on."""
    about.put_many({about.prefix + _PURGED_KEY: _offset.pack(offset)})


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
    """Whether it is about the state as a whole, and no row of an operator."""
    return record[0].startswith(b"\x00")


def records_of(overlay: Overlay) -> list[ChangelogRecord]:
    """The records of a commit; the position comes last."""
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
    """By the start of a changelog's keys, what the same store's keys in a database begin with."""

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

    The rows of a commit wait for the record that ends it. Compaction takes the ends of all commits
    but the last away, so that one may stand behind millions of rows. A reader for whom too much
    waits looks for the last end, and says before which offset everything counts. That is taken up
    piece by piece, and the store is marked as being restored until the end is reached. A row that
    is taken up twice does no harm, so a restoration that was cut off goes on where the mark says.
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
        """Records taken up."""

    def take(self, records: Iterable[Record], counts_before: int = 0) -> int:
        """The next records of the changelog; everything before that offset counts.

        Answers how many bytes wait for the end of their commit, about.
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
        """Take up what waited and what came, in pieces that hold the interpreter for a moment."""
        waited = len(self._open)
        keys, rows = [*self._open, *keys], [*self._open.values(), *rows]
        self._open, self._open_bytes = {}, 0
        for start, end in _pieces(keys, rows):
            piece = self._as_stored(dict(zip(keys[start:end], rows[start:end], strict=True)))
            # Of what waited it is known where it began, and not where each row stood.
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
        """Keys whose newest record in the changelog never counted.

        Their rows must be written again, or compaction keeps the record that does not count and
        throws away the one that does.
        """
        return list(self._open)


def _size_bytes(key: bytes, row: bytes | None) -> int:
    """What a row takes in memory while it waits, about."""
    return _ROW_BYTES + len(key) + len(row or b"")


def _pieces(keys: Sequence[bytes], rows: Sequence[bytes | None]) -> Iterator[tuple[int, int]]:
    """Where pieces of bounded size begin and end."""
    start = size_bytes = 0
    for end, one_bytes in enumerate(map(_size_bytes, keys, rows), 1):
        size_bytes += one_bytes
        if size_bytes >= PIECE_BYTES or end == len(keys):
            yield start, end
            start, size_bytes = end, 0


PIECE_BYTES = 1 << 20
"""So much is taken up at once: a write holds the interpreter, this one for some milliseconds."""
_ROW_BYTES = 200
CHANGELOG = "changelog"
"""The position, in a store, of the first changelog record that is not part of it."""
RESTORING = "restoring"
"""The same of a store that is being restored, and is no state yet; missing where it is whole."""
RESTORED_AT = "restored-at"
"""Where a store that is being restored is whole again: behind a record that ended a commit."""


def is_being_restored(overlay: Overlay) -> bool:
    """Whether a restoration was cut off here: then the rows are no state, and it must go on."""
    return overlay.position(RESTORING) is not None


def reached(overlay: Overlay) -> int:
    """From which changelog record on a store must read, whole or not."""
    restoring = overlay.position(RESTORING)
    return (overlay.position(CHANGELOG) or 0) if restoring is None else restoring


def rewrite(overlay: Overlay, keys: Iterable[bytes]) -> None:
    """Put rows again as they are, so that the next commit's changelog records carry them."""
    for key in keys:
        end = 1 + key[0]
        view = overlay.view(key[1:end].decode())
        whole = view.prefix + key[end:]
        view.put_many({whole: view.get_many([whole])[0]})
