"""A task's state: one header row of numbers, and rows of bytes that are read only when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.spark_jobs.versioned.layout import decode_numbers, encode_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.table_rows import TableRows

Entry = TypeVar("Entry")
Notes = dict[str, frozenset[bytes]]
"""Keys that steps remember within one batch, by the name of the step."""

HEADER = "header"
BUCKETS_DEFAULT = 64
VERDICTS = (
    "kept", "joined", "unmatched", "cold", "failed", "emitted", "passed", "ignored", "ungrouped",
)  # fmt: skip
"""The verdicts on a change or a record at a step, beside being dropped for a reason."""
MERGED = "task:merged"
"""Counts the changes that did not leave a table, for a later one of their batch replaces them."""


class Rows(Protocol):
    """The storage of rows: Spark's map state, or a dict."""

    def get(self, name: str) -> bytes | None:
        """Return the row of that name, None where there is none."""

    def get_all(self, names: Sequence[str]) -> Sequence[bytes | None]:
        """Return the rows of these names, which takes less than one by one."""

    def scan(self, names: Sequence[str]) -> Sequence[bytes | None]:
        """Do as `get_all` by reading every row, which takes less for many of them."""

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""

    def remove(self, name: str) -> None:
        """Remove a row."""

    def settle(self) -> None:
        """Raise an error unless all changes are stored."""


class MemoryRows(dict[str, bytes]):
    """Rows in memory, for bounded runs and tests."""

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names."""
        return [*map(self.get, names)]

    def scan(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names."""
        return self.get_all(names)

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""
        self[name] = row

    def remove(self, name: str) -> None:
        """Remove a row."""
        self.pop(name, None)

    def settle(self) -> None:
        """Do nothing, since every change is stored at once."""


class Changes:
    """Rows over other rows, which get the changes when they are handed over."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[str, bytes | None] = {}
        self._changed: set[str] = set()

    def get(self, name: str) -> bytes | None:
        """Return the row of that name, None where there is none; read it once."""
        if name not in self._known:
            self._known[name] = self._rows.get(name)
        return self._known[name]

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names; read each once."""
        return self._read(names, self._rows.get_all)

    def scan(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the rows of these names; read each once."""
        return self._read(names, self._rows.scan)

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""
        self._known[name] = row
        self._changed.add(name)

    def remove(self, name: str) -> None:
        """Remove a row."""
        self._known[name] = None
        self._changed.add(name)

    def settle(self) -> None:
        """Do nothing, since the changes are handed over later."""

    def hand_over(self) -> None:
        """Make the changes in the rows below."""
        for name in sorted(self._changed):
            row = self._known[name]
            if row is None:
                self._rows.remove(name)
            else:
                self._rows.put(name, row)
        self._changed.clear()

    def _read(
        self, names: Sequence[str], read: Callable[[Sequence[str]], Sequence[bytes | None]]
    ) -> list[bytes | None]:
        unknown = [name for name in names if name not in self._known]
        self._known.update(zip(unknown, read(unknown), strict=True))
        return [self._known[name] for name in names]


class Part(Protocol):
    """A part of the state that writes itself out."""

    def save(self) -> None:
        """Put changes into the rows, and totals into the numbers."""


class TaskState:
    """The whole state of one task between two batches.

    `buckets` is fixed when the state is first written, since the row of a key depends on it
    (`table_rows`). A later state ignores another one.
    """

    def __init__(
        self,
        rows: Rows,
        buckets: int = BUCKETS_DEFAULT,
        notes: Mapping[str, frozenset[bytes]] | None = None,
    ) -> None:
        """Open the rows; `notes` are those of an earlier piece of the same batch."""
        header = rows.get(HEADER)
        self.rows = rows
        self.is_new = header is None
        """True if nothing was ever saved."""
        self.numbers = {"buckets": buckets} if header is None else decode_numbers(header)
        self.buckets = self.numbers["buckets"]
        self.notes: Notes = dict(notes or {})
        """The notes of steps as they were last saved; they are in no row."""
        self._parts: list[Part] = []
        self._forgoing: list[Callable[[Arrival], None]] = []

    def add(self, part: Part) -> None:
        """Save this part with the rest."""
        self._parts.append(part)

    def when_forgone(self, call: Callable[[Arrival], None]) -> None:
        """Call a step with each arrival at which this task failed."""
        self._forgoing.append(call)

    def forgo(self, arrival: Arrival) -> None:
        """Note that an arrival failed, and has changed nothing."""
        for call in self._forgoing:
            call(arrival)

    def count(self, name: str, records: int = 1) -> None:
        """Add to a number that starts at zero."""
        if records:
            self.numbers[name] = self.numbers.get(name, 0) + records

    def counter(self, name: str) -> str:
        """Return the name of a number that exists, so that it can be added to directly."""
        self.numbers.setdefault(name, 0)
        return name

    def balance(self, name: str, held: int = 0) -> int:
        """Return a step's taken records less its verdicts and held ones; zero if none is lost."""
        dropped = f"{name}:dropped:"
        final = {f"{name}:{verdict}" for verdict in VERDICTS}
        verdicts = sum(
            number
            for each, number in self.numbers.items()
            if each in final or each.startswith(dropped)
        )
        return self.numbers.get(f"{name}:taken", 0) - verdicts - held

    def save(self) -> None:
        """Write out every row that changed."""
        for part in self._parts:
            part.save()
        self.rows.put(HEADER, encode_numbers(self.numbers))
        self.rows.settle()


class Buckets(Generic[Entry]):
    """Entries by key; reads only the rows asked for, and writes only those that changed."""

    def __init__(
        self,
        table: TableRows,
        decode: Callable[[bytes], dict[bytes, Entry]],
        encode: Callable[[dict[bytes, Entry]], bytes],
    ) -> None:
        self._table = table
        self._decode = decode
        self._encode = encode
        self._read: dict[int, dict[bytes, Entry]] = {}
        self._changed: set[int] = set()

    def to_read(self, key: bytes) -> dict[bytes, Entry]:
        """Return the bucket of a key, to look into."""
        place = self._table.place_of(key)
        bucket = self._read.get(place)
        return self._load(place) if bucket is None else bucket

    def find(self, keys: Iterable[bytes | None]) -> list[Entry | None]:
        """Return the entry of each key, for many look-ups. A null key has none."""
        place_of = self._table.place_of
        placed = [(-1, b"") if key is None else (place_of(key), key) for key in keys]
        self._load_all({place for place, _ in placed if place >= 0})
        read = self._read
        return [None if place < 0 else read[place].get(key) for place, key in placed]

    def of_all(self, keys: Sequence[bytes], *, changed: int) -> list[dict[bytes, Entry]]:
        """Return the bucket of each key; so many of the first are to be changed."""
        places = self._table.places_of(keys, len(keys)).tolist()
        self._load_all(places)
        self._changed.update(places[:changed])
        read = self._read
        return [read[place] for place in places]

    def to_change(self, key: bytes) -> dict[bytes, Entry]:
        """Return the bucket of a key, to be changed; the next save writes it."""
        place = self._table.place_of(key)
        self._changed.add(place)
        bucket = self._read.get(place)
        return self._load(place) if bucket is None else bucket

    def save(self, clean: Callable[[dict[bytes, Entry]], None] = lambda _: None) -> None:
        """Clean the buckets that changed, and write them out; an empty one has no row."""
        if not self._changed:
            return
        rows = self._encoded(self._changed, clean)
        split = self._table.grow(rows)
        if split:
            rows |= self._encoded(self._split(split), clean)
        for place, row in sorted(rows.items()):
            self._table.put(place, row)
        self._changed.clear()

    def _encoded(
        self, places: Iterable[int], clean: Callable[[dict[bytes, Entry]], None]
    ) -> dict[int, bytes | None]:
        rows: dict[int, bytes | None] = {}
        for place in places:
            bucket = self._read[place]
            clean(bucket)
            rows[place] = self._encode(bucket) if bucket else None
        return rows

    def _split(self, places: list[int]) -> set[int]:
        """Put the entries of rows where they are by now; return all places that changed by it."""
        self._load_all(places)
        entries = [entry for place in places for entry in self._read[place].items()]
        changed = set(places)
        for place in places:
            self._read[place] = {}
        for key, entry in entries:
            place = self._table.place_of(key)
            self._read.setdefault(place, {})[key] = entry
            changed.add(place)
        return changed

    def _load(self, place: int) -> dict[bytes, Entry]:
        self._load_all([place])
        return self._read[place]

    def _load_all(self, places: Iterable[int]) -> None:
        unread = sorted(set(places) - self._read.keys())
        for place, row in zip(unread, self._table.get_all(unread), strict=True):
            self._read[place] = {} if row is None else self._decode(row)
        first_keys = {
            place: next(iter(bucket)) for place in unread if (bucket := self._read[place])
        }
        self._table.refuse_misplaced(first_keys)
