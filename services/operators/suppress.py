"""Suppress: hold the latest update of each key until its time (KIP-328).

The time of an update is fixed when its key enters the buffer: its timestamp (until a time limit)
or the end of its window (until the window closes). Later updates of the key replace it and keep
its place. What is due leaves in the order (time, key bytes) as the last update that came, with
that update's timestamp and headers; then, if the buffer is over its bounds, the answer to that
follows. Rules B1 to B9.

State
    0x00                      stream time (8) | released through (8) | held (8) | their weight (8)
                              | how many of them, the earliest, have no row 0x02 (8)
    0x01 time (8) key         format 1 (1) | length of prior (4) | length of old (4) | prior | old
                              | record; a length is -1 for null, -2 for an old value that is prior
    0x02 key                  the time (8) of an update that stands, or stood, on disk alone
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from contracts.decision import Decision, Reason, Verdict
from contracts.errors import PipelineInvalid, StateCorrupt
from contracts.policies import Hopping, Session, Sliding, SuppressPolicy, Tumbling
from contracts.record import NO_TIME_MS, Headers, Record
from contracts.window import WINDOW_HEADER, parse_window
from services.operators.held import NEVER_MS, Codec, Entry, Held, memory_bounds
from services.operators.operator import Aside, Batch, Counts, Failure, Step, View
from services.operators.readable import set_aside_dead
from services.operators.rows import (
    TIME_BIAS,
    RowReader,
    decode_record,
    encode_record,
    require_format,
    unpack_fields,
)
from services.operators.weight import update_weight

UPDATE_FORMAT = 1
_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_PLACE_SPACE = b"\x02"
_header = Struct(">qqqqq")
_update = Struct(">Bii")
_NULL = -1
_AS_PRIOR = -2
_ENDS_MAX = 10_000
_TIME_BYTES = 8
_pack_time = Struct(">Q").pack


@dataclass(slots=True)
class Update:
    """What is held for one key."""

    place: bytes
    """Its row key; fixed while the key is held."""
    prior: bytes | None
    """The value before the key entered the buffer."""
    old: bytes | None
    """The value before the latest update."""
    record: Record
    weight: int
    has_place_row: bool = False
    """Whether a row 0x02 of its key may stand on disk."""


@dataclass(slots=True)
class BufferSamples:
    """Size and count of the buffer, sampled as Kafka Streams does (rule B8)."""

    samples: int = 1
    size_sum: int = 0
    size_max: int = 0
    count_sum: int = 0
    count_max: int = 0

    def take(self, size: int, count: int) -> None:
        """One more sample."""
        self.samples += 1
        self.size_sum += size
        self.count_sum += count
        if size > self.size_max:
            self.size_max = size
        if count > self.count_max:
            self.count_max = count


class Suppress:
    """The operator over one partition."""

    def __init__(self, policy: SuppressPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self._policy = policy
        self._view = view
        self._explain = explain
        self._final = policy.until == "window-closes"
        self._spills, self._records_max, self._bytes_max = memory_bounds(policy.buffer)
        self._wait_ms = waiting_time_ms(policy)
        self._header_key = view.prefix + _HEADER_KEY
        self._space = view.prefix + _SPACE
        self._place_space = view.prefix + _PLACE_SPACE
        self.samples = BufferSamples()
        self._ends: dict[bytes | None, int | None] = {}
        self._updates: dict[bytes, Update] = {}
        self._time_ms, self.weight, self.count = NO_TIME_MS, 0, 0
        self._held = Held(view, self._space, self._wait_ms, Codec(_encode, self._decode))
        self._held.recalled = self._recalled
        if (header := view.get_many([self._header_key])[0]) is not None:
            self._load(header)
        self.count = self._held.count
        self.counts = Counts(self.count)

    def _load(self, header: bytes) -> None:
        """Go on; an update without row 0x02 must be in memory to be found by its key."""
        self._time_ms, through_ms, held, self.weight, without_place = unpack_fields(_header, header)
        if self._spills:
            self._held.in_memory_max = self._in_memory_max(held)
        self._held.load(held, through_ms, without_place)

    def process(self, batch: Batch) -> Step:
        """Hold every update, let go of what is due."""
        self.counts.taken += len(batch.records)
        # A final result replaces nothing: what follows sees events, as behind Kafka's toStream.
        has_olds = batch.olds is not None and not self._final
        step = Step(Batch([], [], [] if has_olds else None))
        olds: list[bytes | None] = batch.olds or [None] * len(batch.records)
        held = self._held
        if not held.is_all_in_memory:
            self._recall_keys(batch)
        self._hold_all(step, batch, olds)
        self.counts.forwarded += len(step.forwarded.causes)
        if self._spills:
            self._spill(batch)
        self.counts.held = self.count
        return step

    def _hold_all(  # noqa: C901 - every update passes here, and calls would cost more than ifs
        self, step: Step, batch: Batch, olds: list[bytes | None]
    ) -> None:
        """The loop that sees every update: enter or replace, let go of what is due, make room."""
        held, updates, wait_ms, space = self._held, self._updates, self._wait_ms, self._space
        unsaved, take_sample = held.unsaved, self.samples.take
        bounded = not self._spills
        through_ms = max(self._time_ms - wait_ms, held.released_through_ms)
        weight, count, next_ms = self.weight, held.count, held.next_ms
        entered: list[Entry[Update]] = []
        entered_ms = NEVER_MS
        for record, cause, old in zip(batch.records, batch.causes, olds, strict=True):
            key, _, timestamp_ms, headers, _, _, _ = record
            due_ms = self._end_ms(headers) if self._final else timestamp_ms
            if key is None or due_ms is None:
                self._refuse(step, record, cause)
                continue
            if timestamp_ms > self._time_ms:
                self._time_ms = timestamp_ms
                through_ms = max(timestamp_ms - wait_ms, held.released_through_ms)
            update = updates.get(key)
            if update is None:
                place = space + _pack_time(due_ms + TIME_BIAS) + key
                own_weight = update_weight(record, old, old)
                update = updates[key] = Update(place, old, old, record, own_weight)
                entered.append((place, due_ms, update))
                count += 1
                if due_ms < entered_ms:
                    entered_ms = due_ms
            else:
                self._merge(step, update, cause)
                own_weight = update_weight(record, update.prior, old)
                weight -= update.weight
                update.old, update.record, update.weight = old, record, own_weight
                unsaved[update.place] = update
            weight += own_weight
            take_sample(weight, count)
            if self._explain:
                self._decide(step, record, Verdict.HELD, Reason.WAITING, cause)
            is_full = bounded and (count > self._records_max or weight > self._bytes_max)
            if through_ms >= next_ms or through_ms >= entered_ms or is_full:
                self.weight, self.count = weight, count
                if through_ms >= entered_ms or is_full:
                    held.add_many(entered)
                    entered, entered_ms = [], NEVER_MS
                released = held.release_through(through_ms)
                if released:
                    self._release(step, released, cause, self._reason)
                if is_full and not self._make_room(step, cause):
                    return
                weight, count, next_ms = self.weight, self.count, held.next_ms
        self.weight, self.count = weight, count
        if entered:
            held.add_many(entered)

    def _merge(self, step: Step, update: Update, cause: int) -> None:
        """A later update takes the place of the one that is held."""
        self.counts.merged += 1
        if self._explain:
            self._decide(step, update.record, Verdict.MERGED, Reason.UPDATED, cause)

    def _refuse(self, step: Step, record: Record, cause: int) -> None:
        """An update without key, or one that says nowhere which window it belongs to."""
        if record.key is None:
            self.counts.drop(Reason.NULL_KEY)
            if self._explain:
                self._decide(step, record, Verdict.DROPPED, Reason.NULL_KEY, cause)
            return
        detail = f"it has no header `{WINDOW_HEADER}` that names its window"
        dead = Aside(cause, self.name, record, Reason.NO_WINDOW, detail)
        set_aside_dead(step, self.counts, dead)

    @property
    def _reason(self) -> Reason:
        return Reason.WINDOW_CLOSED if self._final else Reason.TIME_LIMIT

    def _end_ms(self, headers: Headers) -> int | None:
        """The end of the window that the headers name; the same few windows come again."""
        value = None
        for name, content in headers:
            if name == WINDOW_HEADER:
                value = content
        if value not in self._ends:
            if len(self._ends) >= _ENDS_MAX:
                self._ends.clear()
            window = parse_window(value)
            self._ends[value] = None if window is None else window.end_ms
        return self._ends[value]

    def _release(self, step: Step, updates: list[Update], cause: int, reason: Reason) -> None:
        """Updates leave as the records that they are; an empty final result is dropped."""
        forwarded = step.forwarded
        for update in updates:
            record = update.record
            key = record[0] or b""
            del self._updates[key]
            self.weight -= update.weight
            if update.has_place_row:
                self._view.put_many({self._place_space + key: None})
            is_empty = self._final and record[1] is None
            if is_empty:
                self.counts.drop(Reason.EMPTY_WINDOW)
            else:
                forwarded.append(record, cause, update.prior)
            if self._explain:
                verdict = Verdict.DROPPED if is_empty else Verdict.FORWARDED
                why = Reason.EMPTY_WINDOW if is_empty else reason
                self._decide(step, record, verdict, why, cause)
        self.count -= len(updates)
        self.samples.take(self.weight, self.count)

    def _make_room(self, step: Step, cause: int) -> bool:
        """Do what the policy says where the buffer is still full; False where it must shut down."""
        count, weight = self.count, self.weight
        evicted = []
        while count > self._records_max or weight > self._bytes_max:
            if self._policy.buffer.when_full == "shut-down":
                sentence = (
                    f"operator `{self.name}` holds {count} updates of {weight} bytes, more than"
                    " its buffer may; raise its bounds, or let it spill"
                )
                step.failure = Failure(cause, self.name, sentence)
                return False
            evicted.append(self._held.release_first())
            count -= 1
            weight -= evicted[-1].weight
        if evicted:
            self._release(step, evicted, cause, Reason.BUFFER_FULL)
        return True

    def _spill(self, batch: Batch) -> None:
        """Keep memory within its bounds, and updates that stand on disk alone out of it."""
        held = self._held
        held.in_memory_max = self._in_memory_max(held.count)
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

    def _recall_keys(self, batch: Batch) -> None:
        """Bring the updates of the batch's keys that stand on disk alone into reach."""
        self._held.save()
        keys = {record[0] for record in batch.records}
        wanted = [key for key in keys if key is not None and key not in self._updates]
        times = self._view.get_many([self._place_space + key for key in wanted])
        places = [
            self._space + _checked_time(time) + key
            for key, time in zip(wanted, times, strict=True)
            if time is not None
        ]
        first = self._held.first_place
        for place, row in zip(places, self._view.get_many(places), strict=True):
            if row is not None and place >= first:
                self._recalled(place, self._decode(place, row))

    def _decode(self, place: bytes, row: bytes) -> Update:
        require_format(row, UPDATE_FORMAT, "suppressed update")
        reader = RowReader(row, 0)
        _, prior_length, old_length = _update.unpack(reader.take(_update.size))
        prior = reader.take_nullable(prior_length)
        old = prior if old_length == _AS_PRIOR else reader.take_nullable(old_length)
        record = decode_record(self._time_and_key(place)[1], reader.rest())
        return Update(
            place, prior, old, record, update_weight(record, prior, old), has_place_row=True
        )

    def _recalled(self, place: bytes, update: Update) -> None:
        self._updates[self._time_and_key(place)[1]] = update

    def _time_and_key(self, place: bytes) -> tuple[bytes, bytes]:
        start = len(self._space)
        return place[start : start + 8], place[start + 8 :]

    def _in_memory_max(self, held: int) -> int:
        """How many updates of the average weight memory may hold."""
        average = max(1, self.weight // held) if held else 1
        return max(2, min(self._records_max, self._bytes_max // average))

    def save(self) -> None:
        """Put what is held, and the header."""
        held = self._held
        held.save()
        header = _header.pack(
            self._time_ms, held.released_through_ms, held.count, self.weight, held.in_memory
        )
        self._view.put_many({self._header_key: header})

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms), ("waiting_time_ms", self._wait_ms))
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))


def waiting_time_ms(policy: SuppressPolicy) -> int:
    """How far stream time must have passed an update's time.

    A session or sliding window can still change at the very moment at which its grace ends, so
    its result waits one millisecond longer (rule B3).
    """
    window = policy.window
    if policy.until == "time-limit":
        return policy.limit_ms or 0
    if isinstance(window, Session):
        return window.gap_ms + window.grace_ms + 1
    if isinstance(window, Sliding):
        return window.grace_ms + 1
    if isinstance(window, Tumbling | Hopping):
        return window.grace_ms
    message = f"operator `{policy.name}` waits for windows to close, but nothing says which windows"
    raise PipelineInvalid(message)


def _encode(update: Update) -> bytes:
    prior, old = update.prior, update.old
    if old is None:
        old_length = _NULL
    elif old == prior:
        old, old_length = b"", _AS_PRIOR
    else:
        old_length = len(old)
    head = _update.pack(UPDATE_FORMAT, _NULL if prior is None else len(prior), old_length)
    return head + (prior or b"") + (old or b"") + encode_record(update.record)


def _checked_time(time: bytes) -> bytes:
    if len(time) != _TIME_BYTES:
        message = f"a suppressed update's place has {len(time)} bytes, not {_TIME_BYTES}"
        raise StateCorrupt(message)
    return time
