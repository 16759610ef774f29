"""Reorder: hold records until no earlier one can come in time.

This is KIP-923's buffer, freed from the join. A record older than stream time less grace is late:
it never enters and never moves stream time. Any other record is held, and leaves when stream time
has passed it by grace, ordered by (timestamp, key bytes, arrival). A record at exactly that time
enters and leaves in one step. Without grace no record is held and there is no state. Rules D3 and
D8.

State
    0x00                   stream time (8) | released through (8) | held (8) | their weight (8),
                           kept where bytes are bounded | next arrival (4)
    0x01 time (8) order    record; order = 0x00 for a null key, else 0x01 and the key; then the
                           arrival (4), so that equal times leave by key bytes, then arrival.
                           Arrivals start again whenever nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from operator import itemgetter
from struct import Struct

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.policies import ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.held import Codec, Held, memory_bounds
from headrace.services.operators.operator import NO_CAUSE, Aside, Batch, Counts, Failure, Step, View
from headrace.services.operators.rows import TIME_BIAS, decode_record, encode_records, unpack_fields
from headrace.services.operators.weight import records_weight

_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_BEHIND_SPACE = b"\x02"
_NULL_KEY = b"\x00"
_header = Struct(">qqqqI")
_KEY_LENGTHS_MAX = 1_024
_ARRIVALS = 1 << 32
_ARRIVAL_BYTES = 4
_key_of = itemgetter(0)
_time_of = itemgetter(2)
_place_of = itemgetter(0)


class PlacePackers(dict[int, Callable[..., bytes]]):
    """Maps a key's length to a function that packs a place from its fields, the key among them."""

    def __init__(self, before_key: str, behind_key: str = "") -> None:
        """Take the fields before and behind the key, as `struct` writes them."""
        super().__init__()
        self._before_key, self._behind_key = before_key, behind_key

    def __missing__(self, key_length: int) -> Callable[..., bytes]:
        if len(self) >= _KEY_LENGTHS_MAX:
            self.clear()
        layout = f">{self._before_key}{key_length}s{self._behind_key}"
        pack = self[key_length] = Struct(layout).pack
        return pack


class Reorder:
    """The operator over one partition."""

    def __init__(self, policy: ReorderPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self._policy = policy
        self._view = view
        self._explain = explain
        self._header_key = view.prefix + _HEADER_KEY
        self._space = view.prefix + _SPACE
        self._bounds = memory_bounds(policy.buffer)
        self._spills, self._records_max, self._bytes_max = self._bounds
        self._time_ms, self._weight, self._arrivals = NO_TIME_MS, 0, 0
        self._place_packers = PlacePackers(f"{len(self._space)}sQB", "I")
        self._held = Held(view, self._space, self._span_ms, Codec(encode_records, self._decode))
        if self._keeps_state and (header := view.get_many([self._header_key])[0]) is not None:
            self._load(*self._load_header(header))
        self.counts = Counts(self._held.count)

    @property
    def _span_ms(self) -> int:
        """Return for how long a record is held, about."""
        return self._policy.grace_ms

    @property
    def _keeps_state(self) -> bool:
        return self._policy.grace_ms > 0

    def _load_header(self, header: bytes) -> tuple[int, int]:
        """Load the header; return how many records are held, and through which time all left."""
        self._time_ms, through_ms, held, self._weight, self._arrivals = unpack_fields(
            _header, header
        )
        return held, through_ms

    def _load(self, held: int, through_ms: int) -> None:
        self._held.released_through_ms = through_ms
        if self._policy.buffer.bytes is None:
            # Without a bound nobody keeps the weight; a later bound weighs the records anew.
            self._weight = 0
        elif self._weight == 0:
            self._weigh_all()
        if self._spills:
            self._held.in_memory_max = self._bounds.in_memory_max(held, self._weight)
        self._held.load(held, through_ms)

    def _weigh_all(self) -> None:
        """Weigh the records that were held before the policy bounded bytes."""
        rows = self._view.range(self._held.first_place, self._view.prefix + _BEHIND_SPACE)
        for place, row in rows:
            self._weigh([self._decode(place, row)], 1)

    def _decode(self, place: bytes, row: bytes) -> Record:
        return decode_record(self._key_at(place), row)

    def _key_at(self, place: bytes) -> bytes | None:
        """Return the key of the record at a place."""
        return key_in(place[len(self._space) + 8 :])

    @property
    def _held_count(self) -> int:
        return self._held.count

    @property
    def stream_time_ms(self) -> int:
        """The latest time of any record that was on time."""
        return self._time_ms

    @property
    def wait_ms(self) -> int:
        """How far stream time must pass a record until it leaves."""
        return self._policy.grace_ms

    @property
    def releases_when_idle(self) -> bool:
        """Whether silence releases records that are held now."""
        return self._policy.idle_ms is not None and self._held_count > 0

    @property
    def left_through_ms(self) -> int | None:
        """No record has left that is later; None if nothing says so."""
        if self._held_count == 0 or self._policy.buffer.when_full == "emit-early":
            return None
        # Behind a restart with a longer grace, the records that left were due by the former one.
        return max(self._time_ms - self._policy.grace_ms, self._held.released_through_ms)

    @property
    def held_from_ms(self) -> int | None:
        """No held record is earlier; None where none is held."""
        return self._held.first_ms if self._held.count else None

    @property
    def held_bytes(self) -> int | None:
        """The weight of the held records; None where nothing bounds it, so it is not kept."""
        return None if self._policy.buffer.bytes is None else self._weight

    def process(self, batch: Batch) -> Step:
        """Hold records that are early, release those that are due."""
        self.counts.taken += len(batch.records)
        step = Step(Batch([], []))
        if self._policy.grace_ms == 0:
            self._pass_through(step, batch)
        elif self._explain or not self._spills:
            self._process_one_by_one(step, batch)
        elif batch.records:
            self._take(step, batch.records, batch.causes)
        if self._spills:
            self._spill()
        self.counts.held = self._held.count
        return step

    def _pass_through(self, step: Step, batch: Batch) -> None:
        self._forward(step, batch.records, batch.causes)
        if self._explain:
            for record, cause in zip(batch.records, batch.causes, strict=True):
                self._decide(step, [record], Verdict.FORWARDED, Reason.NO_GRACE, cause)

    def _process_one_by_one(self, step: Step, batch: Batch) -> None:
        """Check the buffer's bounds after every record, and give each explanation one cause."""
        for record, cause in zip(batch.records, batch.causes, strict=True):
            self._take(step, [record], [cause])
            if self._is_full():
                self._make_room(step, cause)
                if step.failure is not None:
                    return

    def _take(self, step: Step, records: list[Record], causes: list[int]) -> None:
        """Hold records, then release all that are due.

        A batch releases the same records as single records would. A record's cause is the first
        record that moved the due time to it, and no record is held at a time that is due.
        """
        grace_ms = self._policy.grace_ms
        times_ms = list(map(_time_of, records))
        latest_ms = max(times_ms)
        due_before_ms = max(self._time_ms - grace_ms, self._held.released_through_ms)
        due_ms = max(due_before_ms, latest_ms - grace_ms)
        passed: list[tuple[int, Record]] = []
        if min(times_ms) > due_ms:
            self._time_ms = max(self._time_ms, latest_ms)
            self._hold(step, records, times_ms, causes[0])
        else:
            entering, passed = self._sift(step, records, causes, due_before_ms)
            self._hold(step, entering, list(map(_time_of, entering)), causes[0])
        released = self._held.release_through(due_ms)
        self._weigh(released, -1)
        if self._held.count == 0:
            self._arrivals = 0
        if self._explain:
            self._explain_leaving(step, released, passed, causes[-1])
        if not passed:
            arrivals = zip(times_ms, causes, strict=True)
            because = self._causes(released, due_before_ms, causes[0], arrivals)
            self._forward(step, released, because)
            return
        # Sort by place in the batch: records that were released together share a cause.
        arrivals = zip(times_ms, range(len(records)), strict=True)
        places = self._causes(released, due_before_ms, 0, arrivals)
        both = sorted([*zip(places, released, strict=True), *passed], key=_place_of)
        self._forward(step, [record for _, record in both], [causes[at] for at, _ in both])

    def _sift(
        self, step: Step, records: list[Record], causes: list[int], due_ms: int
    ) -> tuple[list[Record], list[tuple[int, Record]]]:
        """Split records into those that enter and those that leave at once; put late ones aside."""
        grace_ms, time_ms = self._policy.grace_ms, self._time_ms
        entering: list[Record] = []
        passed: list[tuple[int, Record]] = []
        for place, record in enumerate(records):
            timestamp_ms = record[2]
            if timestamp_ms > due_ms:
                entering.append(record)
                if timestamp_ms > time_ms:
                    time_ms = timestamp_ms
                    due_ms = max(due_ms, time_ms - grace_ms)
            elif timestamp_ms >= time_ms - grace_ms or self._policy.late == "forward":
                passed.append((place, record))
            else:
                self._put_aside(step, record, causes[place], time_ms)
        self._time_ms = time_ms
        return entering, passed

    def _hold(self, step: Step, records: list[Record], times_ms: list[int], cause: int) -> None:
        """Give each record its place in the buffer."""
        space, packers = self._space, self._place_packers
        arrivals = count(self._arrivals)
        places = [
            packers[len(key)](space, time_ms + TIME_BIAS, 1, key, arrival % _ARRIVALS)
            if key is not None
            else packers[0](space, time_ms + TIME_BIAS, 0, b"", arrival % _ARRIVALS)
            for key, time_ms, arrival in zip(
                map(_key_of, records), times_ms, arrivals, strict=False
            )
        ]
        self._arrivals = (self._arrivals + len(records)) % _ARRIVALS
        self._held.add_many(list(zip(places, records, strict=True)), times_ms)
        self._weigh(records, 1)
        if self._explain:
            self._decide(step, records, Verdict.HELD, Reason.WITHIN_GRACE, cause)

    def _causes(
        self, released: list[Record], due_ms: int, cause: int, arrivals: Iterator[tuple[int, int]]
    ) -> list[int]:
        """Return, for each record that leaves, the first arrival at which it was due."""
        grace_ms = self._policy.grace_ms
        causes: list[int] = []
        for record in released:
            if record[2] > due_ms:
                wanted_ms = record[2] + grace_ms
                for timestamp_ms, arrival in arrivals:
                    if timestamp_ms >= wanted_ms:
                        due_ms, cause = timestamp_ms - grace_ms, arrival
                        break
            causes.append(cause)
        return causes

    def _explain_leaving(
        self, step: Step, released: list[Record], passed: list[tuple[int, Record]], cause: int
    ) -> None:
        """Explain why records left; with explanations on, all have one cause."""
        self._decide(step, released, Verdict.FORWARDED, Reason.GRACE_OVER, cause)
        for _, record in passed:
            is_late = record.timestamp_ms < self._time_ms - self._policy.grace_ms
            why = Reason.PAST_GRACE if is_late else Reason.GRACE_OVER
            self._decide(step, [record], Verdict.FORWARDED, why, cause)

    def _weigh(self, records: list[Record], sign: int) -> None:
        """Count the weight of records, if it is bounded, since every record costs some time."""
        if self._policy.buffer.bytes is not None:
            self._weight += sign * records_weight(records)

    def _forward(self, step: Step, records: list[Record], causes: list[int]) -> None:
        step.forwarded.records += records
        step.forwarded.causes += causes
        self.counts.forwarded += len(records)

    def _put_aside(self, step: Step, record: Record, cause: int, time_ms: int) -> None:
        """Drop a late record, or send it to the late topic."""
        verdict = Verdict.LATE
        if self._policy.late == "drop":
            verdict = Verdict.DROPPED
            self.counts.drop(Reason.PAST_GRACE)
        else:
            self.counts.late += 1
            by_ms = time_ms - self._policy.grace_ms - record.timestamp_ms
            detail = f"{by_ms} ms past the grace of {self._policy.grace_ms} ms"
            step.late.append(Aside(cause, self.name, record, Reason.PAST_GRACE, detail))
        if self._explain:
            self._decide(step, [record], verdict, Reason.PAST_GRACE, cause)

    def _is_full(self) -> bool:
        """Return whether a bound is crossed; a spilling buffer's are its memory's, so never."""
        if self._spills:
            return False
        return self._held.count > self._records_max or self._weight > self._bytes_max

    def _make_room(self, step: Step, cause: int) -> None:
        if self._policy.buffer.when_full == "shut-down":
            weight = f" of {self._weight} bytes" if self._policy.buffer.bytes is not None else ""
            sentence = (
                f"operator `{self.name}` holds {self._held.count} records{weight}, more than its"
                " buffer may; raise its bounds, or let it spill or emit early"
            )
            step.failure = Failure(cause, self.name, sentence)
            return
        while self._is_full():
            record = self._held.release_first()
            self._weigh([record], -1)
            self._forward(step, [record], [cause])
            if self._explain:
                self._decide(step, [record], Verdict.FORWARDED, Reason.BUFFER_FULL, cause)

    def _spill(self) -> None:
        held = self._held
        held.in_memory_max = self._bounds.in_memory_max(held.count, self._weight)
        if held.in_memory > held.in_memory_max:
            held.spill()

    def advance(self, time_ms: int) -> Step:
        """Move the source's time though no record says so; release records past their grace."""
        step = Step(Batch([], []))
        if self._policy.grace_ms and time_ms > self._time_ms:
            self._time_ms = time_ms
            released = self._held.release_through(time_ms - self._policy.grace_ms)
            self._weigh(released, -1)
            self._forward(step, released, [NO_CAUSE] * len(released))
            if self._explain:
                self._decide(step, released, Verdict.FORWARDED, Reason.GRACE_OVER, NO_CAUSE)
            self.counts.held = self._held.count
        return step

    def release_idle(self) -> Step:
        """Release everything, because the source was silent for as long as the policy allows.

        Stream time moves as if a record had come a grace later than the latest that was held, so
        that the released records stay before all that still come.
        """
        step = Step(Batch([], []))
        released = self._held.release_all()
        for record in released[-1:]:
            self._time_ms = max(self._time_ms, record[2] + self._policy.grace_ms)
        self._weight, self._arrivals = 0, 0
        self._forward(step, released, [NO_CAUSE] * len(released))
        if self._explain:
            self._decide(step, released, Verdict.FORWARDED, Reason.IDLE, NO_CAUSE)
        self.counts.held = self._held.count
        return step

    def save(self) -> None:
        """Put the held records, and the header."""
        if self._keeps_state:
            self._held.save()
            self._view.put_many({self._header_key: self._packed_header()})

    def _packed_header(self) -> bytes:
        held = self._held
        return _header.pack(
            self._time_ms, held.released_through_ms, held.count, self._weight, self._arrivals
        )

    def _decide(
        self, step: Step, records: list[Record], verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms), ("grace_ms", self._policy.grace_ms))
        step.decisions += [
            Decision(self.name, record, verdict, reason, evidence, cause) for record in records
        ]


def key_in(order: bytes) -> bytes | None:
    """Return the key of a record from its order, the part of its place behind the time."""
    order = order[:-_ARRIVAL_BYTES]
    return None if order == _NULL_KEY else order[1:]


def times_in(header: bytes) -> tuple[int, int]:
    """Return stream time, and the time through which everything was released."""
    time_ms, through_ms, *_ = unpack_fields(_header, header)
    return time_ms, through_ms
