"""Reorder: hold records until no earlier one can come in time.

This is KIP-923's buffer, freed from the join. A record older than stream time less grace is late:
it never enters and never moves stream time. Any other is held, and leaves when stream time has
passed it by grace, ordered by (timestamp, key bytes, arrival); one at that very time enters and
leaves in one step. Without grace nothing is held and there is no state. Rules D3 and D8.

State
    0x00                   stream time (8) | released through (8) | held (8) | their weight (8)
                           | next arrival (4)
    0x01 time (8) order    record; order = 0x00 for a null key, else 0x01 and the key; then the
                           arrival (4), so that equal times leave by key bytes, then arrival.
                           Arrivals start again whenever nothing is held.
"""

from __future__ import annotations

from struct import Struct

from contracts.decision import Decision, Reason, Verdict
from contracts.policies import ReorderPolicy
from contracts.record import NO_TIME_MS, Record
from services.operators.held import UNBOUNDED, Codec, Held
from services.operators.operator import Aside, Batch, Counts, Failure, Step, View
from services.operators.rows import decode_record, encode_record, pack_time
from services.operators.weight import record_weight

_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_NULL_KEY = b"\x00"
_KEY = b"\x01"
_header = Struct(">qqqqI")
_pack_arrival = Struct(">I").pack
_ARRIVALS = 1 << 32
NO_CAUSE = -1
"""The cause of a release that no record brought about."""


class Reorder:
    """The operator over one partition."""

    def __init__(self, policy: ReorderPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self._policy = policy
        self._view = view
        self._explain = explain
        buffer = policy.buffer
        self._records_max = UNBOUNDED if buffer.records is None else buffer.records
        self._bytes_max = UNBOUNDED if buffer.bytes is None else buffer.bytes
        self._time_ms, self._weight, self._arrivals = NO_TIME_MS, 0, 0
        self._held = Held(view, _SPACE, policy.grace_ms, Codec(encode_record, _decode))
        if policy.grace_ms and (header := view.get_many([_HEADER_KEY])[0]) is not None:
            self._load(header)
        self.counts = Counts(self._held.count)

    def _load(self, header: bytes) -> None:
        self._time_ms, through_ms, held, self._weight, self._arrivals = _header.unpack(header)
        if self._policy.buffer.when_full == "spill":
            self._held.in_memory_max = self._in_memory_max(held)
        self._held.load(held, through_ms)

    def process(self, batch: Batch) -> Step:
        """Hold what is early, let go of what is due."""
        self.counts.taken += len(batch.records)
        step = Step(Batch([], []))
        if self._policy.grace_ms == 0:
            self._release(step, batch.records, batch.causes, Reason.NO_GRACE)
            return step
        held = self._held
        due_ms = max(self._time_ms - self._policy.grace_ms, held.released_through_ms)
        for record, cause in zip(batch.records, batch.causes, strict=True):
            timestamp_ms = record[2]
            if timestamp_ms < due_ms:
                self._late(step, record, cause)
                continue
            if timestamp_ms == due_ms:
                self._release(step, [record], [cause], Reason.GRACE_OVER)
                continue
            self._hold(step, record, cause)
            if timestamp_ms > self._time_ms:
                self._time_ms = timestamp_ms
                due_ms = max(due_ms, timestamp_ms - self._policy.grace_ms)
                if due_ms >= held.next_ms:
                    self._release_held(step, held.release_through(due_ms), cause)
            if self._is_full():
                self._make_room(step, cause)
                if step.failure is not None:
                    break
        if self._policy.buffer.when_full == "spill":
            self._spill()
        self.counts.held = held.count
        return step

    def _hold(self, step: Step, record: Record, cause: int) -> None:
        key = record[0]
        order = _NULL_KEY if key is None else _KEY + key
        place = _SPACE + pack_time(record[2]) + order + _pack_arrival(self._arrivals)
        self._arrivals = (self._arrivals + 1) % _ARRIVALS
        self._held.add(record[2], place, record)
        self._weight += record_weight(record)
        if self._explain:
            self._decide(step, record, Verdict.HELD, Reason.WITHIN_GRACE, cause)

    def _release_held(
        self, step: Step, records: list[Record], cause: int, reason: Reason = Reason.GRACE_OVER
    ) -> None:
        self._weight -= sum(map(record_weight, records))
        if self._held.count == 0:
            self._arrivals = 0
        self._release(step, records, [cause] * len(records), reason)

    def _release(
        self, step: Step, records: list[Record], causes: list[int], reason: Reason
    ) -> None:
        step.forwarded.records += records
        step.forwarded.causes += causes
        self.counts.forwarded += len(records)
        if self._explain:
            for record, cause in zip(records, causes, strict=True):
                self._decide(step, record, Verdict.FORWARDED, reason, cause)

    def _late(self, step: Step, record: Record, cause: int) -> None:
        if self._policy.late == "forward":
            self._release(step, [record], [cause], Reason.PAST_GRACE)
            return
        if self._policy.late == "drop":
            self.counts.drop(Reason.PAST_GRACE)
            verdict = Verdict.DROPPED
        else:
            self.counts.late += 1
            verdict = Verdict.LATE
            by_ms = self._time_ms - self._policy.grace_ms - record.timestamp_ms
            detail = f"{by_ms} ms past the grace of {self._policy.grace_ms} ms"
            step.late.append(Aside(cause, self.name, record, Reason.PAST_GRACE, detail))
        if self._explain:
            self._decide(step, record, verdict, Reason.PAST_GRACE, cause)

    def _is_full(self) -> bool:
        """Whether the bounds are crossed; a buffer that spills never is, its bounds are memory's."""
        if self._policy.buffer.when_full == "spill":
            return False
        return self._held.count > self._records_max or self._weight > self._bytes_max

    def _make_room(self, step: Step, cause: int) -> None:
        held = self._held
        if self._policy.buffer.when_full == "shut-down":
            sentence = (
                f"operator `{self.name}` holds {held.count} records of {self._weight} bytes, more"
                " than its buffer may; raise its bounds, or let it spill or emit early"
            )
            step.failure = Failure(cause, self.name, sentence)
            return
        while self._is_full():
            self._release_held(step, [held.release_first()], cause, Reason.BUFFER_FULL)

    def _spill(self) -> None:
        held = self._held
        held.in_memory_max = self._in_memory_max(held.count)
        if held.in_memory > held.in_memory_max:
            held.spill()

    def _in_memory_max(self, held: int) -> int:
        """How many records of the average weight memory may hold."""
        average = max(1, self._weight // held) if held else 1
        return max(2, min(self._records_max, self._bytes_max // average))

    def release_idle(self) -> Step:
        """Let go of everything, because the source was silent for as long as the policy allows.

        Stream time moves as if a record had come a grace later than the latest, so that what left
        stays before all that still comes.
        """
        step = Step(Batch([], []))
        self._time_ms += self._policy.grace_ms
        released = self._held.release_through(self._time_ms - self._policy.grace_ms)
        self._release_held(step, released, NO_CAUSE, Reason.IDLE)
        self.counts.held = self._held.count
        return step

    def save(self) -> None:
        """Put what is held, and the header."""
        if self._policy.grace_ms == 0:
            return
        self._held.save()
        held = self._held
        header = _header.pack(
            self._time_ms, held.released_through_ms, held.count, self._weight, self._arrivals
        )
        self._view.put_many({_HEADER_KEY: header})

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms), ("grace_ms", self._policy.grace_ms))
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))


def _decode(_order: bytes, row: bytes) -> Record:
    return decode_record(row)
