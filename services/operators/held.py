"""Items held until their time, in the order in which they leave.

An item's place is its row key: space | time (8 bytes) | order (any bytes). Memory has the earliest
items. After `save` the disk has every item, so a new `Held` goes on where another stopped. Memory
is a calendar: the earliest slot is sorted, and later slots are lists that are sorted when their
turn comes. So holding and releasing an item costs its share of an append and a sort.

Invariants
    1. `_ready[_position:]` is sorted and before every slot; every slot is before `_horizon`.
    2. Items at or behind `_horizon` are on disk (or in `unsaved`) alone; None: there are none.
    3. Rows of items that left by time are not deleted one by one. Their time is over for good, so
       whole stretches are dropped now and then, and `load` begins behind that time.
    4. An item that comes and goes between two saves never touches the disk.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from itertools import compress
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from headrace.contracts.policies import BufferPolicy
from headrace.services.operators.operator import View
from headrace.services.operators.rows import pack_time, unpack_time
from headrace.services.operators.sweep import Sweep

Item = TypeVar("Item")
Entry = tuple[bytes, Item]
"""Row key and item. Row keys are unique, so entries sort by them alone."""
UNBOUNDED = (1 << 63) - 1
NEVER_MS = 1 << 63
IN_MEMORY_RECORDS = 50_000
"""The records that an unbounded buffer keeps in memory; the others are on disk alone."""
_TIME_MS_MAX = (1 << 63) - 1
_SLOTS_PER_SPAN = 16
_place_of = itemgetter(0)
_item_of = itemgetter(1)


class Bounds(NamedTuple):
    """Whether a buffer spills, and the records and bytes that it, or its memory, may hold."""

    spills: bool
    records_max: int
    bytes_max: int

    def in_memory_max(self, held: int, weight: int) -> int:
        """Return how many of the held items, which weigh so much together, memory may have."""
        average = max(1, weight // held) if held else 1
        return max(2, min(self.records_max, self.bytes_max // average))


def memory_bounds(buffer: BufferPolicy) -> Bounds:
    """Return the bounds of a buffer; without any it is never full, but its memory has a bound."""
    spills = buffer.when_full in {None, "spill"}
    records_max = UNBOUNDED if buffer.records is None else buffer.records
    bytes_max = UNBOUNDED if buffer.bytes is None else buffer.bytes
    if buffer.when_full is None:
        records_max = IN_MEMORY_RECORDS
    return Bounds(spills, records_max, bytes_max)


class Codec(NamedTuple, Generic[Item]):
    """How items become rows, and a row at its place becomes an item."""

    encode_many: Callable[[Collection[Item]], list[bytes]]
    decode: Callable[[bytes, bytes], Item]


class Held(Generic[Item]):
    """A time-ordered buffer, the earliest part in memory."""

    def __init__(self, view: View, space: bytes, span_ms: int, codec: Codec[Item]) -> None:
        """Hold items for about `span_ms` each, in the rows that begin with `space`."""
        self._view = view
        self._space = space
        self._end = space[:-1] + bytes([space[-1] + 1])
        self._codec = codec
        self._slot_ms = max(1, span_ms // _SLOTS_PER_SPAN)
        self._ready: list[Entry[Item]] = []
        self._position = 0
        self._ready_slot = -NEVER_MS
        self._slots: dict[int, list[Entry[Item]]] = {}
        self._slot_order: list[int] = []
        self._horizon: bytes | None = None
        self._sweep = Sweep(view, space)
        self.unsaved: dict[bytes, Item] = {}
        """The items that `save` must put, by row key, unless they left since."""
        self._left_early: dict[bytes, None] = {}
        """Row keys of items that left before their time; such an item may come again."""
        self.released_through_ms = 1 - NEVER_MS
        """Every held item has a later time."""
        self._saved_from = b""
        """The first place at the last save; while it stays, no unsaved item has left by time."""
        self.recalled: Callable[[bytes, Item], None] | None = None
        """Called with every item that comes from disk into memory."""
        self.in_memory_max = UNBOUNDED
        self.count = 0
        self.in_memory = 0
        self.next_ms = NEVER_MS
        """No item has an earlier time."""

    def load(self, count: int, released_through_ms: int, in_memory_min: int = 0) -> None:
        """Take up the saved state: `count` items, all behind `released_through_ms`."""
        self.released_through_ms = released_through_ms
        self.count = count
        if count:
            self._recall(self.first_place, in_memory_min)

    @property
    def first_place(self) -> bytes:
        """No item has an earlier row key."""
        return self._behind(self.released_through_ms)

    def _behind(self, time_ms: int) -> bytes:
        """Return the place at which the row keys of later times begin."""
        if time_ms >= _TIME_MS_MAX:
            return self._end
        return self._space + pack_time(time_ms + 1)

    def add_many(self, entries: list[Entry[Item]], times_ms: list[int]) -> None:
        """Hold items at places of their own, whose times are not over."""
        self.count += len(entries)
        self.unsaved.update(entries)
        if self._horizon is not None:
            near = [place < self._horizon for place, _ in entries]
            entries, times_ms = list(compress(entries, near)), list(compress(times_ms, near))
        if entries:
            self.in_memory += len(entries)
            self._add_in_memory(entries, times_ms)
        self._set_next()

    def _add_in_memory(self, entries: list[Entry[Item]], times_ms: list[int]) -> None:
        """Sort entries into slots; a batch mostly falls into one, and goes there in one piece."""
        slot = min(times_ms) // self._slot_ms
        if slot > self._ready_slot and max(times_ms) // self._slot_ms == slot:
            self._slot(slot).extend(entries)
            return
        slots, slot_ms, ready_slot = self._slots, self._slot_ms, self._ready_slot
        for entry, time_ms in zip(entries, times_ms, strict=True):
            slot = time_ms // slot_ms
            if slot <= ready_slot:
                insort(self._ready, entry, self._position)
            elif slot in slots:
                slots[slot].append(entry)
            else:
                self._slot(slot).append(entry)

    def _slot(self, slot: int) -> list[Entry[Item]]:
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = []
            heappush(self._slot_order, slot)
        return entries

    @property
    def first_ms(self) -> int:
        """The time of the earliest item, where one is held; `next_ms` may be its slot's begin."""
        if self._position == len(self._ready) and self._slot_order:
            self._advance()
            self._set_next()
        return self.next_ms

    @property
    def is_all_in_memory(self) -> bool:
        """Whether memory has every item."""
        return self._horizon is None

    def is_in_memory(self, row_key: bytes) -> bool:
        """Return whether memory has an item at this place, and not the disk alone."""
        return self._horizon is None or row_key < self._horizon

    def release_through(self, time_ms: int) -> list[Item]:
        """Release every item up to and with this time, which is over from now on."""
        released = self._release(self._behind(time_ms), time_ms)
        self.released_through_ms = max(self.released_through_ms, time_ms)
        return list(map(_item_of, released))

    def release_all(self) -> list[Item]:
        """Release every item; the time of the latest is over from now on."""
        released = self._release(self._end, NEVER_MS)
        if released:
            latest_ms = self._time_at(released[-1][0])
            self.released_through_ms = max(self.released_through_ms, latest_ms)
        return list(map(_item_of, released))

    def release_before(self, place: bytes) -> list[Entry[Item]]:
        """Release every item whose row key is before this place, which is over from now on.

        All earlier times are over; items of the place's own time may still come behind it.
        """
        time_ms = self._time_at(place)
        released = self._release(place, time_ms)
        self.released_through_ms = max(self.released_through_ms, time_ms - 1)
        first = self._behind(time_ms - 1)
        for row_key, _ in released[bisect_left(released, first, key=_place_of) :]:
            self.unsaved.pop(row_key, None)
            self._left_early[row_key] = None
        return released

    def _release(self, place: bytes, time_ms: int) -> list[Entry[Item]]:
        """Release items before a place of this time, in order."""
        released: list[Entry[Item]] = []
        while time_ms >= self.next_ms and self._advance():
            ready, start = self._ready, self._position
            end = bisect_left(ready, place, start, key=_place_of)
            released += ready[start:end]
            self._position = end
            self.in_memory -= end - start
            self._set_next()
            if end < len(ready):
                break
        self.count -= len(released)
        return released

    def release_first(self) -> Item:
        """Release the earliest item, before its time."""
        if not self._advance():
            message = "nothing is held"
            raise AssertionError(message)
        row_key, item = self._ready[self._position]
        self._position += 1
        self.count -= 1
        self.in_memory -= 1
        self.unsaved.pop(row_key, None)
        self._left_early[row_key] = None
        self._set_next()
        return item

    def _advance(self) -> bool:
        """Move to the earliest item, so that it is at `_position`; return False if none is held."""
        if self._position < len(self._ready):
            return True
        self._position = 0
        if self._slot_order:
            self._ready_slot = heappop(self._slot_order)
            self._ready = self._slots.pop(self._ready_slot)
            self._ready.sort(key=_place_of)
            return True
        self._ready = []
        if self._horizon is not None:
            self._recall(self._horizon)
        return bool(self._ready)

    def _set_next(self) -> None:
        if self._position < len(self._ready):
            self.next_ms = self._time_at(self._ready[self._position][0])
        elif self._slot_order:
            self.next_ms = self._slot_order[0] * self._slot_ms
        elif self._horizon is not None:
            self.next_ms = self._time_at(self._horizon)
        else:
            self.next_ms = NEVER_MS

    def _time_at(self, row_key: bytes) -> int:
        return unpack_time(row_key, len(self._space))

    def _recall(self, start: bytes, in_memory_min: int = 1) -> None:
        """Load the next items from disk into memory, about half of what memory may hold."""
        self.save()
        self._horizon = None
        limit = max(1, in_memory_min, self.in_memory_max // 2)
        for row_key, row in self._view.range(start, self._end):
            if len(self._ready) >= limit:
                self._horizon = row_key
                break
            item = self._codec.decode(row_key, row)
            self._ready.append((row_key, item))
        self.in_memory = len(self._ready)
        if self._ready:
            self._ready_slot = self._time_at(self._ready[-1][0]) // self._slot_ms
        self._set_next()
        if self.recalled is not None:
            for row_key, item in self._ready:
                self.recalled(row_key, item)

    def spill(self) -> list[Item]:
        """Remove the latest items from memory until it is half full; return them."""
        keep = self.in_memory_max // 2
        spilled: list[Entry[Item]] = []
        for slot in sorted(self._slots, reverse=True):
            if self.in_memory <= keep:
                break
            self.in_memory -= len(self._slots[slot])
            spilled += self._slots.pop(slot)
        self._slot_order = list(self._slots)
        heapify(self._slot_order)
        if self.in_memory > keep:
            spilled += self._ready[self._position + keep :]
            del self._ready[self._position + keep :]
            self.in_memory = keep
        self._horizon = min(map(_place_of, spilled))
        self.save()
        self._set_next()
        return [item for _, item in spilled]

    def save(self) -> None:
        """Put items that were not put yet; drop items that left."""
        first, unsaved = self.first_place, self.unsaved
        if first != self._saved_from:
            unsaved = {place: item for place, item in unsaved.items() if place >= first}
            self._saved_from = first
        rows: dict[bytes, bytes | None] = {}
        if self._left_early:
            rows |= {place: None for place in self._left_early if place >= first}
            self._left_early.clear()
        rows.update(zip(unsaved, self._codec.encode_many(unsaved.values()), strict=True))
        self._view.put_many(rows)
        self._sweep.count(len(rows))
        self.unsaved.clear()
        self._sweep.up_to(first)
