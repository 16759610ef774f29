"""Merge: bring records of many source partitions into one order, in whatever order they were read.

It stands behind a repartition: as a reorder of the pipeline's, or in front of operators that go by
time. A record's turn is (time, source partition, arrival). The time is its timestamp; if the record
is late in its own partition, it is that partition's time less grace. A record leaves once no lane
that is awake can still send one whose turn comes before (see `lanes`). Within one lane records
arrive in the order of their partition. So the records that leave, their order, and which of them
are late depend on the source partitions alone.

A late record waits for its turn like any other, and then follows the late policy. The bound does
not wait for a lane that is idle or unknown. A record of such a lane may come behind its turn, and
is late at once.

With one lane this is a reorder, except that records of equal times leave in order of arrival.

State
    0x00                   bound: time (8), partition (4) | latest turn (8) | released through (8)
                           | held (8) | their weight (8) | next arrival (4); or the header of a
                           reorder that was here before there were lanes
    0x01 time (8) order    record; order = 0x02, partition + 1 (4), arrival (4), then 0x00 for a
                           null key, else 0x01 and the key. Orders of a reorder are read as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from struct import Struct
from typing import Any

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.origin import Origin
from headrace.contracts.policies import MergePolicy, ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.held import Entry
from headrace.services.operators.lanes import NOTHING, PARTITION_MAX, Bound, Lanes
from headrace.services.operators.operator import NO_CAUSE, Batch, Step, View
from headrace.services.operators.readable import only
from headrace.services.operators.reorder import PlacePackers, Reorder
from headrace.services.operators.reorder import key_in as reordered_key_in
from headrace.services.operators.reorder import times_in as reordered_times_in
from headrace.services.operators.rows import TIME_BIAS, pack_time, unpack_fields, unpack_time

_IN_LANE = b"\x02"
_BEHIND_LANES = b"\x03"
_header = Struct(">qiqqqqI")
_order = Struct(">BII")
_ARRIVALS = 1 << 32
_NO_KEY = b"\x00"
_cause_of = itemgetter(0)
_SPAN_AT_LEAST_MS = 1_600
_pack_biased = Struct(">Q").pack
_Came = tuple[list[bytes], list[int]]
"""The places of records that came with a batch, and their causes."""
_Leaving = tuple[int, int | None, Record]
"""A record on its way out: its cause, its turn (None if it came behind it), and itself."""


class _Tails(dict[int, bytes]):
    """Maps a lane to the end of the place behind all of its records of one time."""

    def __missing__(self, partition: int) -> bytes:
        self[partition] = _IN_LANE + (partition + 2).to_bytes(4, "big")
        return self[partition]


_TAILS = _Tails({PARTITION_MAX: _BEHIND_LANES})


class Merge(Reorder):
    """The operator over one partition behind a repartition."""

    def __init__(
        self,
        policy: MergePolicy | ReorderPolicy,
        view: View,
        lanes: Lanes,
        *,
        explain: bool = False,
    ) -> None:
        """Go on where an earlier instance over the same view saved; lanes say how far to go."""
        if isinstance(policy, MergePolicy):
            policy = ReorderPolicy(name=policy.name, store=policy.store, grace_ms=0)
        self._lanes = lanes
        self._bound = NOTHING
        self.latest_ms = NO_TIME_MS
        """No record was ever given a later turn."""
        super().__init__(policy, view, explain=explain)
        self._packers = PlacePackers(f"{len(self._space)}sQBIIB")
        self._gone = self._reached = b""
        self._move_to(lanes.bound if self._bound == NOTHING else self._bound)

    def _move_to(self, bound: Bound) -> None:
        """Move the bound: every record whose turn is at this bound leaves, or has left."""
        self._bound, self._time_ms = bound, bound.time_ms
        self._gone = self._place_behind(bound)
        """Every record before this place leaves."""
        self._reached = max(self._place_of(bound), self._held.first_place)
        """Every record that arrives before this place comes behind its turn."""

    @property
    def _goes_by_turn(self) -> bool:
        """Whether a late record leaves another way than one on time."""
        return self._explain or self._policy.late != "forward"

    @property
    def _span_ms(self) -> int:
        # Other source partitions may be behind by much more than the grace.
        return max(self._policy.grace_ms, _SPAN_AT_LEAST_MS)

    @property
    def _keeps_state(self) -> bool:
        return True

    def _load_header(self, header: bytes) -> tuple[int, int]:
        if len(header) != _header.size:
            held, through_ms = super()._load_header(header)
            self._bound = Bound(self._time_ms, PARTITION_MAX)
            self.latest_ms = self._time_ms
            return held, through_ms
        time_ms, partition, self.latest_ms, through_ms, held, self._weight, self._arrivals = (
            unpack_fields(_header, header)
        )
        self._bound, self._time_ms = Bound(time_ms, partition), time_ms
        return held, through_ms

    def _packed_header(self) -> bytes:
        held = self._held
        return _header.pack(
            *self._bound,
            self.latest_ms,
            held.released_through_ms,
            held.count,
            self._weight,
            self._arrivals,
        )

    def _key_at(self, place: bytes) -> bytes | None:
        return key_in(place[len(self._space) + 8 :])

    def _place_of(self, bound: Bound) -> bytes:
        """Return the place at which the slowest lane may go on, or all lanes if they were idle."""
        time = self._space + pack_time(bound.time_ms - self._policy.grace_ms)
        if bound.partition >= PARTITION_MAX:
            return time
        return time + _IN_LANE + (bound.partition + 1).to_bytes(4, "big")

    def _place_behind(self, bound: Bound) -> bytes:
        """Return the place before which all records have their turn at a bound."""
        time = pack_time(bound.time_ms - self._policy.grace_ms)
        return self._space + time + _TAILS[bound.partition]

    def process(self, batch: Batch) -> Step:
        """Give every record its turn, and release those whose turn it is."""
        assert batch.origins is not None
        self.counts.taken += len(batch.records)
        step = Step(Batch([], [], origins=[]))
        if self._explain or not self._spills:
            self._merge_one_by_one(step, batch, batch.origins)
        else:
            leaving, came = self._enter(step, batch.records, batch.causes, batch.origins)
            self._let_go(step, leaving, came, batch.causes[-1] if batch.is_part else None)
        if self._spills:
            self._spill()
        self.counts.held = self._held.count
        return step

    def _merge_one_by_one(self, step: Step, batch: Batch, origins: list[Origin]) -> None:
        """Check the buffer's bounds after every record, and give each reason one cause."""
        for record, cause, origin in zip(batch.records, batch.causes, origins, strict=True):
            leaving, came = self._enter(step, [record], [cause], [origin])
            self._let_go(step, leaving, came, cause)
            if self._is_full():
                self._make_room(step, cause)
                if step.failure is not None:
                    return
        if not batch.is_part:
            self._let_go(step, [], ([], []), None)

    def _enter(
        self, step: Step, records: list[Record], causes: list[int], origins: list[Origin]
    ) -> tuple[list[_Leaving], _Came]:
        """Hold records at their places; return those that leave now, and when the others came."""
        grace_ms = self._policy.grace_ms
        turns_ms = [
            time_ms if (time_ms := record[2]) >= (late_ms := origin[2] - grace_ms) else late_ms
            for record, origin in zip(records, origins, strict=True)
        ]
        if self._policy.late == "drop":
            records, causes, origins, turns_ms = self._on_time(
                step, records, causes, origins, turns_ms
            )
        places = self._places_of(records, origins, turns_ms)
        leaving: list[_Leaving] = []
        behind = self._lanes.behind
        if places and (behind or min(places) < max(self._gone, self._reached)):
            leaving, is_held = self._passing(places, records, causes, turns_ms)
            places, records, causes, turns_ms = only(is_held, (places, records, causes, turns_ms))
        if places:
            self.latest_ms = max(self.latest_ms, *turns_ms)
            self._held.add_many(list(zip(places, records, strict=True)), turns_ms)
            self._weigh(records, 1)
            if self._explain:
                self._decide(step, records, Verdict.HELD, Reason.WITHIN_GRACE, causes[0])
        return leaving, (places, causes)

    def _on_time(
        self,
        step: Step,
        records: list[Record],
        causes: list[int],
        origins: list[Origin],
        turns_ms: list[int],
    ) -> Iterator[list[Any]]:
        """Drop records that are late; return the others, their causes, origins and turns."""
        is_on_time = [
            record[2] >= turn_ms for record, turn_ms in zip(records, turns_ms, strict=True)
        ]
        for at in (at for at, is_so in enumerate(is_on_time) if not is_so):
            self._put_aside(step, records[at], causes[at], origins[at][2])
        return only(is_on_time, (records, causes, origins, turns_ms))

    def _places_of(
        self, records: list[Record], origins: list[Origin], turns_ms: list[int]
    ) -> list[bytes]:
        """Return the place of each record; those that leave at once have a number, too."""
        space, packers, bias = self._space, self._packers, TIME_BIAS
        first, end = self._arrivals, self._arrivals + len(records)
        self._arrivals = end % _ARRIVALS
        numbers: Iterable[int] = range(first, end)
        if end > _ARRIVALS:
            numbers = (number % _ARRIVALS for number in numbers)
        return [
            packers[len(key)](space, turn_ms + bias, 2, origin[0] + 1, number, 1, key)
            if (key := record[0]) is not None
            else packers[0](space, turn_ms + bias, 2, origin[0] + 1, number, 0, b"")
            for record, origin, turn_ms, number in zip(
                records, origins, turns_ms, numbers, strict=True
            )
        ]

    def _passing(
        self,
        places: list[bytes],
        records: list[Record],
        causes: list[int],
        turns_ms: list[int],
    ) -> tuple[list[_Leaving], list[bool]]:
        """Return the records that leave now, and of each whether it is held."""
        gone, reached, behind = self._gone, self._reached, self._lanes.behind
        leaving: list[_Leaving] = []
        is_held = [False] * len(places)
        for at, (place, cause) in enumerate(zip(places, causes, strict=True)):
            if place < reached or (behind and cause in behind and place < self._reached_at(cause)):
                leaving.append((cause, None, records[at]))
            elif place < gone:
                leaving.append((cause, turns_ms[at], records[at]))
            else:
                is_held[at] = True
        return leaving, is_held

    def _reached_at(self, cause: int) -> bytes:
        return self._place_of(self._lanes.bound_before(cause))

    def _let_go(self, step: Step, leaving: list[_Leaving], came: _Came, until: int | None) -> None:
        """Release all records whose turn it is by a cause, or by the end of the batch."""
        moved_by, bounds = self._lanes.steps_behind(self._bound, until)
        released: list[Entry[Record]] = []
        causes: list[int] = []
        if moved_by:
            self._move_to(self._lanes.bound if until is None else self._lanes.bound_at(until))
            released = self._held.release_before(self._gone)
            causes = self._causes_of(released, moved_by, bounds)
            if released and came[0] and min(came[0]) < self._gone:
                came_at = dict(zip(*came, strict=True))
                causes = [
                    max(cause, came_at.get(place, cause))
                    for (place, _), cause in zip(released, causes, strict=True)
                ]
        if self._held.count == 0:
            self._arrivals = 0
        records = [record for _, record in released]
        self._weigh(records, -1)
        if not leaving and not self._goes_by_turn:
            # They stand in the order of their causes, and nobody asks for their turns.
            self._forward(step, records, causes)
            return
        time_at = len(self._space)
        turns_ms = [unpack_time(place, time_at) for place, _ in released]
        leaving += zip(causes, turns_ms, records, strict=True)
        leaving.sort(key=_cause_of)
        self._leave(step, leaving)

    def _causes_of(
        self, released: list[Entry[Record]], moved_by: list[int], bounds: list[tuple[int, int]]
    ) -> list[int]:
        """Return, for each released record, the first cause by which its turn has come."""
        space, bias, tails = self._space, TIME_BIAS - self._policy.grace_ms, _TAILS
        gone_at = [space + _pack_biased(time_ms + bias) + tails[lane] for time_ms, lane in bounds]
        step, gone, cause = 0, gone_at[0], moved_by[0]
        causes: list[int] = []
        for place, _ in released:
            if place >= gone:
                step = bisect_right(gone_at, place, step)
                gone, cause = gone_at[step], moved_by[step]
            causes.append(cause)
        return causes

    def _leave(
        self, step: Step, leaving: list[_Leaving], on_time: Reason = Reason.GRACE_OVER
    ) -> None:
        """Forward records that are on time; treat late ones as the policy says."""
        grace_ms = self._policy.grace_ms
        forwards = self._policy.late == "forward"
        out, because = step.forwarded.records, step.forwarded.causes
        if not self._goes_by_turn:
            out += [record for _, _, record in leaving]
            because += map(_cause_of, leaving)
            self.counts.forwarded += len(leaving)
            return
        before = len(out)
        for cause, turn_ms, record in leaving:
            is_late = turn_ms is None or turn_ms > record[2]
            if is_late and not forwards:
                time_ms = self._bound.time_ms if turn_ms is None else turn_ms + grace_ms
                self._put_aside(step, record, cause, time_ms)
                continue
            out.append(record)
            because.append(cause)
            if self._explain:
                reason = Reason.PAST_GRACE if is_late else on_time
                self._decide(step, [record], Verdict.FORWARDED, reason, cause)
        self.counts.forwarded += len(out) - before

    def advance(self, time_ms: int) -> Step:
        """Do nothing: lanes say how far their sources are, and records leave by that."""
        del time_ms
        return Step(Batch([], [], origins=[]))

    def release_idle(self) -> Step:
        """Release everything, because the source was silent for as long as the policy allows."""
        step = Step(Batch([], [], origins=[]))
        time_at = len(self._space)
        released = self._held.release_before(self._space + pack_time(self.latest_ms + 1))
        leaving: list[_Leaving] = [
            (NO_CAUSE, unpack_time(place, time_at), record) for place, record in released
        ]
        self._weight, self._arrivals = 0, 0
        self._leave(step, leaving, Reason.IDLE)
        over_ms = max(self._time_ms, self.latest_ms + self._policy.grace_ms)
        self._move_to(Bound(over_ms, PARTITION_MAX))
        self.counts.held = self._held.count
        return step


def key_in(order: bytes) -> bytes | None:
    """Return the key of a record from its order, the part of its place behind the time."""
    if order[:1] == _IN_LANE:
        order = order[_order.size :]
        return None if order == _NO_KEY else order[1:]
    return reordered_key_in(order)


def times_in(header: bytes) -> tuple[int, int]:
    """Return the time of the bound, and the time through which everything was released."""
    if len(header) != _header.size:
        return reordered_times_in(header)
    time_ms, _, _, through_ms, *_ = _header.unpack(header)
    return time_ms, through_ms
