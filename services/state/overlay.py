"""Uncommitted changes of operators, over a store.

Operators read through views of the overlay, so they see their own changes at once; the store sees
none before `commit`. The changes are the changelog: `changed_stores()` returns the rows that must
go to Kafka, in the transaction that also carries the output and the source's offsets. Then `commit`
writes the same rows to the store as one write batch, with the positions that this state has
reached. So the store is never ahead of the changelog. If the overlay is thrown away instead,
nothing has changed.

Drops are not in the changelog. The time of dropped rows is over, and every operator that drops does
so from the beginning of its rows. So after a restore, the next drop removes what an earlier one had
removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import repeat
from operator import itemgetter
from typing import Any

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer, StateOfAnotherPipeline
from headrace.services.operators.operator import Changes
from headrace.services.state import layout
from headrace.services.state.store import Store, Stretch


class Overlay:
    """The uncommitted changes of one partition."""

    def __init__(self, store: Store, pipeline: str) -> None:
        """Stamp a new store; refuse one that another pipeline or a newer program wrote."""
        self._store = store
        self._meta: dict[bytes, bytes | None] = {}
        self._views: dict[str, StoreView] = {}
        self._open(pipeline)

    def _open(self, pipeline: str) -> None:
        version, owner = self._store.get_many([layout.LAYOUT_KEY, layout.PIPELINE_KEY])
        if version is None:
            self._meta[layout.LAYOUT_KEY] = layout.pack_version(layout.LAYOUT_VERSION)
            self._meta[layout.PIPELINE_KEY] = pipeline.encode()
            return
        if layout.unpack_version(version) > layout.LAYOUT_VERSION:
            message = (
                f"this state has layout {layout.unpack_version(version)}, this program reads up to"
                f" {layout.LAYOUT_VERSION}; upgrade headrace, or delete the state folder to"
                " rebuild it from the changelog"
            )
            raise StateLayoutNewer(message)
        if owner != pipeline.encode():
            message = (
                f"this state belongs to pipeline `{(owner or b'').decode(errors='replace')}`, not"
                f" `{pipeline}`; give each pipeline a state folder of its own"
            )
            raise StateOfAnotherPipeline(message)

    @property
    def changelog_id(self) -> str | None:
        """The id of the changelog whose rows these are; None where it is unknown."""
        row = self._store.get_many([layout.CHANGELOG_KEY])[0]
        return None if row is None else row.decode(errors="replace")

    def belong_to(self, changelog_id: str) -> None:
        """Put, with the next write, the id of the changelog whose rows these are."""
        self._meta[layout.CHANGELOG_KEY] = changelog_id.encode()

    def view(self, name: str) -> StoreView:
        """Return the view of the store with this name."""
        view = self._views.get(name)
        if view is None:
            prefix = layout.row_prefix(self._number(name))
            view = self._views[name] = StoreView(self._store, prefix)
        return view

    def _number(self, name: str) -> int:
        key = layout.STORE_KEY + name.encode()
        row = self._store.get_many([key])[0] or self._meta.get(key)
        if row is not None:
            return layout.unpack_number(row)
        end = layout.end_of(layout.STORE_KEY)
        known = dict(self._store.range(layout.STORE_KEY, end))
        known |= {
            key: row
            for key, row in self._meta.items()
            if row is not None and key.startswith(layout.STORE_KEY)
        }
        number = len(known)
        if number >= layout.STORES_MAX or number in map(layout.unpack_number, known.values()):
            message = (
                f"the directory of stores is damaged: {len(known)} names, but {number} is taken"
            )
            raise StateCorrupt(message)
        self._meta[key] = layout.pack_number(number)
        return number

    def position(self, name: str) -> int | None:
        """Return a position as of the last commit."""
        row = self._store.get_many([layout.POSITION_KEY + name.encode()])[0]
        return None if row is None else layout.unpack_position(row)

    def changed_stores(self) -> Iterator[tuple[str, int, Mapping[bytes, bytes | None]]]:
        """Yield the rows that were set or deleted since the last commit, each once.

        By store: its name, the length of its keys' prefix, and its rows.
        """
        for name, view in self._views.items():
            if view.pending:
                yield name, len(view.prefix), view.pending

    def take_up(
        self, rows: Mapping[bytes, bytes | None], positions: Mapping[str, int | None]
    ) -> None:
        """Write rows of a changelog to the store, as one write batch; their keys are whole.

        A position that is None is removed. No change may be pending: restored rows are older than
        any change of an operator.
        """
        assert not any(view.pending for view in self._views.values())
        meta = self._meta | {
            layout.POSITION_KEY + name.encode(): None
            if position is None
            else layout.pack_position(position)
            for name, position in positions.items()
        }
        self._store.write([], {**rows, **meta})
        self._meta = {}

    def commit(self, positions: Mapping[str, int]) -> None:
        """Write all changes and these positions to the store, as one write batch."""
        meta = dict(self._meta)
        for name, position in positions.items():
            meta[layout.POSITION_KEY + name.encode()] = layout.pack_position(position)
        views = self._views.values()
        drops = [stretch for view in views for stretch in view.drops]
        self._store.write(drops, meta, *(view.pending for view in views))
        self._meta = {}
        self.discard()

    def discard(self) -> None:
        """Forget all changes; the operators over the views must be thrown away too.

        Stamps and numbers of stores remain to be written, since open views rely on them.
        """
        for view in self._views.values():
            view.forget()


class StoreView:
    """One store's rows as its operator sees them."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        """See the rows of `store` that begin with `prefix`."""
        self._store = store
        self.prefix = prefix
        self.drops: list[Stretch] = []
        self.pending: dict[bytes, bytes | None] = {}

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""
        pending = self.pending
        if not pending or pending.keys().isdisjoint(keys):
            return self._read(keys)
        rows: list[Any] = list(map(pending.get, keys, repeat(_MISSING)))
        missing = [place for place, row in enumerate(rows) if row is _MISSING]
        for place, row in zip(missing, self._read([keys[at] for at in missing]), strict=True):
            rows[place] = row
        return rows

    def _read(self, keys: list[bytes]) -> list[bytes | None]:
        rows = self._store.get_many(keys) if keys else []
        if self.drops:
            return [
                None if self._is_dropped(key) else row for key, row in zip(keys, rows, strict=True)
            ]
        return rows

    def _is_dropped(self, key: bytes) -> bool:
        return any(start <= key < end for start, end in self.drops)

    def put_many(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Set rows; None deletes."""
        self.pending.update(rows)

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order."""
        pending = self.pending
        unchanged = (
            (key, row)
            for key, row in self._store.range(start, end)
            if key not in pending and not (self.drops and self._is_dropped(key))
        )
        changed = sorted(
            (key, row) for key, row in pending.items() if row is not None and start <= key < end
        )
        return merge(unchanged, changed, key=_key_of) if changed else unchanged

    def drop(self, start: bytes, end: bytes) -> None:
        """Drop all rows with start <= key < end."""
        self.drops.append((start, end))
        for key in [key for key in self.pending if start <= key < end]:
            del self.pending[key]

    def changes(self) -> Changes:
        """Return the puts and drops so far that are not committed."""
        return Changes(dict(self.pending), list(self.drops))

    def go_back(self, to: Changes) -> None:
        """Undo the puts and drops since then."""
        self.pending, self.drops = dict(to.rows), list(to.drops)

    def forget(self) -> None:
        """Begin anew, because the changes are in the store, or never shall be."""
        self.pending = {}
        self.drops = []


_key_of = itemgetter(0)
_MISSING = object()
