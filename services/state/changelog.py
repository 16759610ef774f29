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
from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

from contracts.errors import StateCorrupt
from contracts.record import Record, offset_of
from services.state.overlay import Overlay, StoreView

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


def read_stamp(about: StoreView) -> Stamp | None:
    """Who wrote this state, None where it is new."""
    row = about.get_many([about.prefix + _STAMP_KEY])[0]
    if row is None:
        return None
    try:
        written = json.loads(row)
        # A later version may say more; its layout tells that it is one.
        return Stamp(*(written[name] for name in Stamp._fields))
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
    """Takes up a changelog into an overlay's store, whole commits alone."""

    def __init__(self, overlay: Overlay) -> None:
        """Go on where the overlay's store is."""
        self._overlay = overlay
        self._prefixes = _Prefixes(overlay)
        self._open: dict[bytes, bytes | None] = {}
        self.restored = 0
        """Records taken up."""

    def take(self, records: Iterable[Record]) -> None:
        """The next records of the changelog."""
        records = list(records)
        keys = [record[0] or b"" for record in records]
        rows = [record[1] for record in records]
        closed = len(keys) - keys[::-1].index(POSITION) if POSITION in keys else 0
        if closed:
            whole = self._open
            whole.update(zip(keys[:closed], rows, strict=False))
            self._overlay.take_up(self._as_stored(whole), CHANGELOG, _behind(records[closed - 1]))
            self.restored += len(whole)
            self._open = {}
        self._open.update(zip(keys[closed:], rows[closed:], strict=True))

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


CHANGELOG = "changelog"
"""The position, in a store, of the first changelog record that is not part of it."""


def rewrite(overlay: Overlay, keys: Iterable[bytes]) -> None:
    """Put rows again as they are, so that the next commit's changelog records carry them."""
    for key in keys:
        end = 1 + key[0]
        view = overlay.view(key[1:end].decode())
        whole = view.prefix + key[end:]
        view.put_many({whole: view.get_many([whole])[0]})
