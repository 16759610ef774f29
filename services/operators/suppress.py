"""Suppress: hold the latest update of each key until its time (KIP-328).

The time of an update is fixed when its key enters the buffer: its timestamp (until a time limit)
or the end of its window (until the window closes). Later updates of the key replace it and keep
its place. What is due leaves in the order (time, key bytes) as the last update that came, with
that update's timestamp and headers; then, if the buffer is over its bounds, the answer to that
follows. Rules B1 to B9.

State
    0x00                      stream time (8) | released through (8) | held (8) | their weight (8)
                              | whether rows 0x02 are kept (1)
    0x01 time (8) key         format 1 (1) | length of prior (4) | length of old (4) | prior | old
                              | record; a length is -1 for null, -2 for an old value that is prior
    0x02 key                  the time (8) of an update that stands, or stood, on disk alone
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from contracts.decision import Decision, Reason, Verdict
from contracts.errors import PipelineInvalid
from contracts.policies import Hopping, Session, Sliding, SuppressPolicy, Tumbling
from contracts.record import NO_TIME_MS, Headers, Record
from contracts.window import WINDOW_HEADER, parse_window
from services.operators.held import UNBOUNDED, Codec, Held
from services.operators.operator import Aside, Batch, Counts, Failure, Step, View
from services.operators.readable import set_aside_dead
from services.operators.rows import (
    RowReader,
    decode_record,
    encode_record,
    pack_time,
    require_format,
)
from services.operators.weight import update_weight

UPDATE_FORMAT = 1
_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_PLACE_SPACE = b"\x02"
_KEY_AT = len(_SPACE) + 8
_header = Struct(">qqqq?")
_update = Struct(">Bii")
_NULL = -1
_AS_PRIOR = -2
_ENDS_MAX = 10_000


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
    has_place_row: bool
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
        self._spills = policy.buffer.when_full == "spill"
        self._wait_ms = waiting_time_ms(policy)
        self._records_max = UNBOUNDED if policy.buffer.records is None else policy.buffer.records
        self._bytes_max = UNBOUNDED if policy.buffer.bytes is None else policy.buffer.bytes
        self.samples = BufferSamples()
        self._ends: dict[bytes | None, int | None] = {}
        self._updates: dict[bytes, Update] = {}
        self._time_ms, self.weight = NO_TIME_MS, 0
        self._held = Held(view, _SPACE, self._wait_ms, Codec(_encode, _decode))
        self._held.recalled = self._recalled
        if (header := view.get_many([_HEADER_KEY])[0]) is not None:
            self._load(header)
        self.counts = Counts(self._held.count)

    def _load(self, header: bytes) -> None:
        """Go on; without rows 0x02 all must come into memory, to be spilled with them."""
        self._time_ms, through_ms, held, self.weight, has_places = _header.unpack(header)
        if self._spills and has_places:
            self._held.in_memory_max = self._in_memory_max(held)
        self._held.load(held, through_ms)

    def process(self, batch: Batch) -> Step:
        """Hold every update, let go of what is due."""
        self.counts.taken += len(batch.records)
        olds = batch.olds if batch.olds is not None else [None] * len(batch.records)
        step = Step(Batch([], [], None if batch.olds is None else []))
        held = self._held
        if held.in_memory < held.count:
            self._recall_keys(batch)
        for record, cause, old in zip(batch.records, batch.causes, olds, strict=True):
            due_ms = self._due_ms(record, cause, step)
            if due_ms is None:
                continue
            self._hold(step, record, cause, old, due_ms)
            self.samples.take(self.weight, held.count)
            through_ms = max(self._time_ms - self._wait_ms, held.released_through_ms)
            if through_ms >= held.next_ms:
                self._release(step, held.release_through(through_ms), cause, self._reason)
            if self._is_full():
                self._make_room(step, cause)
                if step.failure is not None:
                    break
        if self._spills:
            self._spill(batch)
        self.counts.held = held.count
        return step

    @property
    def _reason(self) -> Reason:
        return Reason.WINDOW_CLOSED if self._final else Reason.TIME_LIMIT

    def _due_ms(self, record: Record, cause: int, step: Step) -> int | None:
        """From when the update counts its waiting; None where it cannot be held."""
        key, _, timestamp_ms, headers, _, _, _ = record
        if key is None:
            self.counts.drop(Reason.NULL_KEY)
            if self._explain:
                self._decide(step, record, Verdict.DROPPED, Reason.NULL_KEY, cause)
            return None
        if self._final:
            end_ms = self._end_ms(headers)
            if end_ms is None:
                detail = f"it has no header `{WINDOW_HEADER}` that names its window"
                dead = Aside(cause, self.name, record, Reason.NO_WINDOW, detail)
                set_aside_dead(step, self.counts, dead)
                return None
        else:
            end_ms = timestamp_ms
        if timestamp_ms > self._time_ms:
            self._time_ms = timestamp_ms
        return end_ms

    def _end_ms(self, headers: Headers) -> int | None:
        """The end of the window that the headers name; the same few windows come again and again."""
        value = next((value for name, value in reversed(headers) if name == WINDOW_HEADER), None)
        if value not in self._ends:
            if len(self._ends) >= _ENDS_MAX:
                self._ends.clear()
            window = parse_window(value)
            self._ends[value] = None if window is None else window.end_ms
        return self._ends[value]

    def _hold(self, step: Step, record: Record, cause: int, old: bytes | None, due_ms: int) -> None:
        key = record[0]
        assert key is not None
        update = self._updates.get(key)
        if update is None:
            place = _SPACE + pack_time(due_ms) + key
            weight = update_weight(record, old, old)
            update = Update(place, old, old, record, weight, has_place_row=False)
            self._held.add(due_ms, place, update)
            self._updates[key] = update
        else:
            if self._explain:
                self._decide(step, update.record, Verdict.MERGED, Reason.UPDATED, cause)
            self.counts.merged += 1
            weight = update_weight(record, update.prior, old)
            self.weight -= update.weight
            update.old, update.record, update.weight = old, record, weight
            self._held.changed(update.place, update)
        self.weight += weight
        if self._explain:
            self._decide(step, record, Verdict.HELD, Reason.WAITING, cause)

    def _release(self, step: Step, updates: list[Update], cause: int, reason: Reason) -> None:
        """Updates leave as the records that they are; an empty final result is dropped."""
        forwarded = step.forwarded
        places: dict[bytes, bytes | None] = {}
        for update in updates:
            record = update.record
            key = update.place[_KEY_AT:]
            del self._updates[key]
            self.weight -= update.weight
            if update.has_place_row:
                places[_PLACE_SPACE + key] = None
            if self._final and record.value is None:
                self.counts.drop(Reason.EMPTY_WINDOW)
                verdict, why = Verdict.DROPPED, Reason.EMPTY_WINDOW
            else:
                forwarded.append(record, cause, update.prior)
                self.counts.forwarded += 1
                verdict, why = Verdict.FORWARDED, reason
            if self._explain:
                self._decide(step, record, verdict, why, cause)
        if places:
            self._view.put_many(places)
        if updates:
            self.samples.take(self.weight, self._held.count)

    def _is_full(self) -> bool:
        """Whether the bounds are crossed; a buffer that spills never is, its bounds are memory's."""
        return not self._spills and (
            self._held.count > self._records_max or self.weight > self._bytes_max
        )

    def _make_room(self, step: Step, cause: int) -> None:
        if self._policy.buffer.when_full == "shut-down":
            sentence = (
                f"operator `{self.name}` holds {self._held.count} updates of {self.weight} bytes,"
                " more than its buffer may; raise its bounds, or let it spill"
            )
            step.failure = Failure(cause, self.name, sentence)
            return
        evicted = []
        count, weight = self._held.count, self.weight
        while count > self._records_max or weight > self._bytes_max:
            update = self._held.release_first()
            evicted.append(update)
            count -= 1
            weight -= update.weight
        self._release(step, evicted, cause, Reason.BUFFER_FULL)

    def _spill(self, batch: Batch) -> None:
        """Keep memory within its bounds, and updates that stand on disk alone out of it."""
        held = self._held
        held.in_memory_max = self._in_memory_max(held.count)
        outside = held.spill() if held.in_memory > held.in_memory_max else []
        for key in {record[0] for record in batch.records if record[0] in self._updates}:
            update = self._updates[key]
            if not held.is_in_memory(update.place):
                outside.append(update)
        places: dict[bytes, bytes | None] = {}
        for update in outside:
            key = update.place[_KEY_AT:]
            if self._updates.pop(key, None) is not None:
                places[_PLACE_SPACE + key] = update.place[len(_SPACE) : _KEY_AT]
        self._view.put_many(places)

    def _recall_keys(self, batch: Batch) -> None:
        """Bring the updates of the batch's keys that stand on disk alone into reach."""
        self._held.save()
        keys = {record[0] for record in batch.records}
        wanted = [key for key in keys if key is not None and key not in self._updates]
        times = self._view.get_many([_PLACE_SPACE + key for key in wanted])
        places = [
            _SPACE + time + key for key, time in zip(wanted, times, strict=True) if time is not None
        ]
        held_from = self._held.row_key(self._held.released_through_ms + 1, b"")
        for place, row in zip(places, self._view.get_many(places), strict=True):
            if row is not None and place >= held_from:
                self._recalled(place, _decode(place, row))

    def _recalled(self, place: bytes, update: Update) -> None:
        self._updates[place[_KEY_AT:]] = update

    def _in_memory_max(self, held: int) -> int:
        """How many updates of the average weight memory may hold."""
        average = max(1, self.weight // held) if held else 1
        return max(2, min(self._records_max, self._bytes_max // average))

    def save(self) -> None:
        """Put what is held, and the header."""
        held = self._held
        held.save()
        header = _header.pack(
            self._time_ms, held.released_through_ms, held.count, self.weight, self._spills
        )
        self._view.put_many({_HEADER_KEY: header})

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


def _decode(place: bytes, row: bytes) -> Update:
    require_format(row, 0, UPDATE_FORMAT, "suppressed update")
    reader = RowReader(row, 0)
    _, prior_length, old_length = _update.unpack(reader.take(_update.size))
    prior = reader.take_nullable(prior_length)
    old = prior if old_length == _AS_PRIOR else reader.take_nullable(old_length)
    record = decode_record(reader.rest())
    weight = update_weight(record, prior, old)
    return Update(place, prior, old, record, weight, has_place_row=True)
