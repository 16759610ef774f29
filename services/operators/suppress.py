"""Suppress: hold the latest update of each key until its time (KIP-328).

The time of an update is fixed when its key enters the buffer: its timestamp (until a time limit)
or the end of its window (until the window closes). Later updates of the key replace it and keep
its place. Due updates leave in the order (time, key bytes), each as the last one of its key, with
that one's timestamp and headers. Then the policy says what a full buffer does. Rules B1 to B9.

State
    0x00                      stream time (8) | released through (8) | held (8) | their weight (8)
                              | how many of them, the earliest, have no row 0x02 (8)
    0x01 time (8) key         an update, see `updates`
    0x02 key                  the time (8) of an update that is, or was, on disk alone
    0x03                      see `laggards`
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import compress
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.policies import SuppressPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import WINDOW_HEADER
from headrace.services.operators.held import NEVER_MS, UNBOUNDED, Codec, Held, memory_bounds
from headrace.services.operators.laggards import Laggards
from headrace.services.operators.operator import NO_CAUSE, Aside, Batch, Counts, Failure, Step, View
from headrace.services.operators.readable import only, set_aside_dead
from headrace.services.operators.rows import TIME_BIAS, unpack_fields
from headrace.services.operators.shared import of_each
from headrace.services.operators.updates import (
    UPDATE_SPACE,
    Arrivals,
    BufferSamples,
    Update,
    WindowEnds,
    checked_time,
    decode_update,
    encode_updates,
    waiting_time_ms,
)
from headrace.services.operators.weight import replaced_weight, update_weights

_HEADER_KEY = b"\x00"
_PLACE_SPACE = b"\x02"
_header = Struct(">qqqqq")
_pack_time = Struct(">Q").pack
_place_of = attrgetter("place")
_key_of = itemgetter(0)
_time_of = itemgetter(2)


class Suppress:
    """The operator over one partition."""

    def __init__(self, policy: SuppressPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self._policy = policy
        self._view = view
        self._explain = explain
        self._final = policy.until == "window-closes"
        self._reason = Reason.WINDOW_CLOSED if self._final else Reason.TIME_LIMIT
        self._bounds = memory_bounds(policy.buffer)
        self._spills, self._records_max, self._bytes_max = self._bounds
        self.wait_ms = waiting_time_ms(policy)
        self._header_key = view.prefix + _HEADER_KEY
        self._space = view.prefix + UPDATE_SPACE
        self._place_space = view.prefix + _PLACE_SPACE
        self.samples = BufferSamples()
        self._end_ms = WindowEnds().of
        self._updates: dict[bytes, Update] = {}
        self.stream_time_ms, self.weight, self.count = NO_TIME_MS, 0, 0
        self._decode = partial(decode_update, len(self._space))
        self.laggards = Laggards(view)
        # A final result is always earlier than its place, the end of its window.
        encode = encode_updates if self._final else self.laggards.encode
        self._held = Held(view, self._space, self.wait_ms, Codec(encode, self._decode))
        self._held.recalled = self._recalled
        if (header := view.get_many([self._header_key])[0]) is not None:
            self._load(header)
        self.count = self._held.count
        self.counts = Counts(self.count)

    @property
    def held_from_ms(self) -> int | None:
        """No held update entered with an earlier time; None where none is held."""
        return self._held.first_ms if self.count else None

    def _load(self, header: bytes) -> None:
        """Load the saved state; updates without row 0x02 must be in memory to be found by key."""
        time_ms, through_ms, held, self.weight, without_place = unpack_fields(_header, header)
        self.stream_time_ms = time_ms
        if self._spills:
            self._held.in_memory_max = self._bounds.in_memory_max(held, self.weight)
        self._held.load(held, through_ms, without_place)

    @property
    def released_through_ms(self) -> int:
        """Every update that was due then, or before, has left."""
        return self._held.released_through_ms

    def reach(self, keys: Iterable[bytes | None]) -> Mapping[bytes, Update]:
        """Load the held updates of these keys; return all updates in memory, by key."""
        if not self._held.is_all_in_memory:
            self._held.save()
            self._recall([key for key in {*keys} if key is not None and key not in self._updates])
        return self._updates

    def process(self, batch: Batch) -> Step:
        """Hold every update, release those that are due."""
        self.counts.taken += len(batch.records)
        # A final result replaces nothing: operators behind see events, as behind Kafka's toStream.
        step = Step(Batch([], [], None if batch.olds is None or self._final else []))
        self.reach(map(_key_of, batch.records))
        if self._explain or self._could_fill(batch):
            self._take_one_by_one(step, batch)
        else:
            self._take(step, batch)
        if self._spills:
            self._spill(batch)
        self.counts.held = self.count
        return step

    def advance(self, time_ms: int) -> Step:
        """Move the source's time though no record says so; release updates that are due."""
        step = Step(Batch([], [], None if self._final else []))
        time_ms = self.stream_time_ms = max(self.stream_time_ms, time_ms)
        self._release(step, self._held.release_through(time_ms - self.wait_ms), NO_CAUSE)
        self.counts.held = self.count
        return step

    def _could_fill(self, batch: Batch) -> bool:
        """Return whether the buffer would be full if no update left and none was replaced."""
        if not self._spills and self.count + len(batch.records) > self._records_max:
            return True
        if self._spills or self._bytes_max == UNBOUNDED:
            return False
        olds = sum(len(old) for old in batch.olds or () if old is not None)
        return self.weight + sum(update_weights(batch.records)) + olds > self._bytes_max

    def _take_one_by_one(self, step: Step, batch: Batch) -> None:
        """Check the buffer's bounds after every update, and give each explanation one cause."""
        held, wait_ms = self._held, self.wait_ms
        through_ms = max(self.stream_time_ms - wait_ms, held.released_through_ms)
        arrivals = self._readable(step, batch)
        for record, cause, old, due_ms, weight in zip(*arrivals, strict=True):
            if record[2] > self.stream_time_ms:
                self.stream_time_ms = record[2]
                through_ms = max(self.stream_time_ms - wait_ms, held.released_through_ms)
            if self._explain:
                self._explain_arrival(step, record, cause)
            self._hold(record, old, due_ms, weight)
            self.samples.take([self.weight], [self.count])
            if through_ms >= held.next_ms:
                self._release(step, held.release_through(through_ms), cause)
            if self._is_full() and not self._make_room(step, cause):
                return

    def _hold(self, record: Record, old: bytes | None, due_ms: int, weight: int) -> None:
        """Add an update to the buffer, or replace the one of its key."""
        key = record[0] or b""
        update = self._updates.get(key)
        prior = old if update is None else update.prior
        weight += replaced_weight(prior, old)
        self.weight += weight
        if update is None:
            place = self._space + _pack_time(due_ms + TIME_BIAS) + key
            update = self._updates[key] = Update(place, due_ms, prior, old, record, weight)
            self._held.add_many([(place, update)], [due_ms])
            self.count += 1
        else:
            self.counts.merged += 1
            self.weight -= update.weight
            update.old, update.record, update.weight = old, record, weight
            self._held.unsaved[update.place] = update

    def _release(self, step: Step, updates: list[Update], cause: int) -> None:
        """Forward updates that one record made due."""
        if updates:
            self._forget(updates)
            self.samples.take([self.weight], [self.count])
            self._leave(step, updates, [cause] * len(updates), self._reason)

    def _forget(self, updates: list[Update]) -> None:
        for update in updates:
            del self._updates[update.record[0] or b""]
            self.weight -= update.weight
        self.count -= len(updates)

    def _take(self, step: Step, batch: Batch) -> None:  # noqa: PLR0915 - see below
        """Hold updates; those that are due by the end of the batch leave on the way there.

        Every update passes the loop, so the loop calls nothing that can be done for all at once.
        """
        records, causes, olds, dues_ms, weights = self._readable(step, batch)
        if not records:
            return
        times_ms = list(map(_time_of, records))
        held, updates, space, wait_ms = self._held, self._updates, self._space, self.wait_ms
        unsaved, weight, count = held.unsaved, self.weight, self.count
        reached_ms = max(self.stream_time_ms, held.released_through_ms + wait_ms)
        self.stream_time_ms = max(self.stream_time_ms, *times_ms)
        through_ms = max(self.stream_time_ms - wait_ms, held.released_through_ms)
        due = held.release_through(through_ms) if through_ms >= held.next_ms else []
        position = 0
        next_ms = due[0].due_ms + wait_ms if due else NEVER_MS
        entered: list[tuple[bytes, Update]] = []
        because: list[int] = []
        sizes: list[int] = []
        counts: list[int] = []
        begun_ms, beginning = NEVER_MS, b""
        for key, timestamp_ms, due_ms, record, own_weight, cause, old in zip(
            map(_key_of, records), times_ms, dues_ms, records, weights, causes, olds, strict=True
        ):
            if timestamp_ms > reached_ms:
                reached_ms = timestamp_ms
            update = updates.get(key)
            if update is None:
                # The value that it replaces is also the value before it entered, and counts once.
                held_weight = own_weight if old is None else own_weight + len(old)
                if due_ms != begun_ms:  # a window's results are due together
                    begun_ms, beginning = due_ms, space + _pack_time(due_ms + TIME_BIAS)
                place = beginning + key
                update = updates[key] = Update(place, due_ms, old, old, record, held_weight)
                count += 1
                if due_ms > through_ms:
                    entered.append((place, update))
                else:
                    insort(due, update, position, key=_place_of)
                    next_ms = due[position].due_ms + wait_ms
            else:
                held_weight = own_weight + replaced_weight(update.prior, old)
                weight -= update.weight
                update.old, update.record, update.weight = old, record, held_weight
                unsaved[update.place] = update
            weight += held_weight
            sizes.append(weight)
            counts.append(count)
            if next_ms > reached_ms:
                continue
            while next_ms <= reached_ms:
                update = due[position]
                position += 1
                next_ms = due[position].due_ms + wait_ms if position < len(due) else NEVER_MS
                del updates[update.record[0] or b""]
                weight -= update.weight
                count -= 1
                because.append(cause)
            sizes.append(weight)
            counts.append(count)
        if due and through_ms > held.released_through_ms:
            held.released_through_ms = through_ms  # updates that came and left here were never held
        # The buffer grew by the updates that entered, less those that left; all others merged.
        self.counts.merged += len(records) - (count - self.count + len(due))
        self.weight, self.count = weight, count
        self.samples.take(sizes, counts)
        held.add_many(entered, [update.due_ms for _, update in entered])
        self._leave(step, due, because, self._reason)

    def _readable(self, step: Step, batch: Batch) -> Arrivals:
        """Return the updates that can be held, each with the time that its place begins with."""
        records, causes = batch.records, batch.causes
        olds = batch.olds or [None] * len(records)
        if self._final:
            dues_ms: Any = of_each([record[3] for record in records], self._end_ms)
        else:
            dues_ms = list(map(_time_of, records))
        arrivals = Arrivals(records, causes, olds, dues_ms, update_weights(records))
        if None not in dues_ms and None not in map(_key_of, records):
            return arrivals
        is_good = []
        for record, cause, due_ms in zip(records, causes, dues_ms, strict=True):
            is_good.append(record.key is not None and due_ms is not None)
            if not is_good[-1]:
                self._refuse(step, record, cause)
        return Arrivals(*only(is_good, arrivals))

    def _explain_arrival(self, step: Step, record: Record, cause: int) -> None:
        """Explain that an update is held, and that the one it replaces is merged."""
        if (update := self._updates.get(record.key or b"")) is not None:
            self._decide(step, update.record, Verdict.MERGED, Reason.UPDATED, cause)
        self._decide(step, record, Verdict.HELD, Reason.WAITING, cause)

    def _refuse(self, step: Step, record: Record, cause: int) -> None:
        """Drop an update without key; an update that names no window is dead."""
        if record.key is None:
            self.counts.drop(Reason.NULL_KEY)
            if self._explain:
                self._decide(step, record, Verdict.DROPPED, Reason.NULL_KEY, cause)
            return
        detail = f"it has no header `{WINDOW_HEADER}` that names its window"
        set_aside_dead(step, self.counts, Aside(cause, self.name, record, Reason.NO_WINDOW, detail))

    def _leave(self, step: Step, updates: list[Update], causes: list[int], reason: Reason) -> None:
        """Forward updates as the records that they are; drop empty final results."""
        places = {
            self._place_space + (update.record[0] or b""): None
            for update in updates
            if update.has_place_row
        }
        if places:
            self._view.put_many(places)
        leaving = [update.record for update in updates]
        if self._explain:
            for record, cause in zip(leaving, causes, strict=True):
                is_empty = self._final and record[1] is None
                verdict = Verdict.DROPPED if is_empty else Verdict.FORWARDED
                why = Reason.EMPTY_WINDOW if is_empty else reason
                self._decide(step, record, verdict, why, cause)
        if self._final:
            is_filled = [record[1] is not None for record in leaving]
            if not all(is_filled):
                self.counts.drop(Reason.EMPTY_WINDOW, is_filled.count(False))
                leaving = list(compress(leaving, is_filled))
                causes = list(compress(causes, is_filled))
        step.forwarded.records += leaving
        step.forwarded.causes += causes
        if step.forwarded.olds is not None:
            step.forwarded.olds += [update.prior for update in updates]
        self.counts.forwarded += len(leaving)

    def _is_full(self) -> bool:
        over = self.count > self._records_max or self.weight > self._bytes_max
        return over and not self._spills

    def _make_room(self, step: Step, cause: int) -> bool:
        """Do what the policy says if the buffer is full; return False if it must shut down."""
        if self._policy.buffer.when_full == "shut-down":
            sentence = (
                f"operator `{self.name}` holds {self.count} updates of {self.weight} bytes, more"
                " than its buffer may; raise its bounds, or let it spill"
            )
            step.failure = Failure(cause, self.name, sentence)
            step.dead = [dead for dead in step.dead if dead.cause <= cause]
            return False
        early = []
        while self._is_full():
            early.append(self._held.release_first())
            self._forget(early[-1:])
        self.samples.take([self.weight], [self.count])
        self._leave(step, early, [cause] * len(early), Reason.BUFFER_FULL)
        return True

    def _spill(self, batch: Batch) -> None:
        """Keep memory within its bounds, and forget updates that are on disk alone."""
        held = self._held
        held.in_memory_max = self._bounds.in_memory_max(held.count, self.weight)
        outside = held.spill() if held.in_memory > held.in_memory_max else []
        if not held.is_all_in_memory:
            keys = self._updates.keys() & {record[0] or b"" for record in batch.records}
            updates = [self._updates[key] for key in keys]
            outside += [update for update in updates if not held.is_in_memory(update.place)]
        places: dict[bytes, bytes | None] = {}
        for update in outside:
            time, key = self._time_and_key(update.place)
            if self._updates.pop(key, None) is not None:
                places[self._place_space + key] = time
        self._view.put_many(places)

    def _recall(self, wanted: list[bytes]) -> None:
        """Load updates of these keys that are on disk alone."""
        times = self._view.get_many([self._place_space + key for key in wanted])
        places = [
            self._space + checked_time(time) + key
            for key, time in zip(wanted, times, strict=True)
            if time is not None
        ]
        first = self._held.first_place
        for place, row in zip(places, self._view.get_many(places), strict=True):
            if row is not None and place >= first:
                self._recalled(place, self._decode(place, row))

    def _recalled(self, place: bytes, update: Update) -> None:
        self._updates[self._time_and_key(place)[1]] = update

    def _time_and_key(self, place: bytes) -> tuple[bytes, bytes]:
        start = len(self._space)
        return place[start : start + 8], place[start + 8 :]

    def save(self) -> None:
        """Put the held updates, and the header."""
        held = self._held
        held.save()
        self.laggards.save(held.next_ms)
        header = _header.pack(
            self.stream_time_ms, held.released_through_ms, held.count, self.weight, held.in_memory
        )
        self._view.put_many({self._header_key: header})

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self.stream_time_ms), ("waiting_time_ms", self.wait_ms))
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))
