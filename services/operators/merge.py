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

from collections.abc import Iterable
from operator import itemgetter
from struct import Struct

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import MergePolicy, ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.fresh import Fresh
from headrace.services.operators.held import Entry
from headrace.services.operators.lanes import NOTHING, PARTITION_MAX, Bound, Lanes
from headrace.services.operators.operator import NO_CAUSE, Batch, Origins, Step, View
from headrace.services.operators.readable import only
from headrace.services.operators.reorder import PlacePackers, Reorder
from headrace.services.operators.reorder import key_in as reordered_key_in
from headrace.services.operators.reorder import times_in as reordered_times_in
from headrace.services.operators.rows import TIME_BIAS, pack_time, unpack_fields, unpack_time
from headrace.services.operators.turns import (
    FROM_DISK,
    LANE_BITS,
    before_turns_at,
    causes_of,
    lane_of,
    not_before,
    time_of,
    turn_of,
)

_IN_LANE = b"\x02"
_BEHIND_LANES = b"\x03"
_header = Struct(">qiqqqqI")
_order = Struct(">BII")
_ARRIVALS = 1 << 32
_NO_KEY = b"\x00"
_cause_of = itemgetter(0)
_turn_of = itemgetter(0)
_record_of = itemgetter(1)
_time_of = itemgetter(2)
_SPAN_AT_LEAST_MS = 1_600
_Leaving = tuple[int, int | None, Record]
"""A record on its way out: its cause, the time of its turn (None if it came behind it), itself."""


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
            policy = ReorderPolicy(
                name=policy.name, store=policy.store, grace_ms=0, buffer=policy.buffer
            )
        self._lanes = lanes
        self._bound = NOTHING
        self.latest_ms = NO_TIME_MS
        """No record was ever given a later turn."""
        self._fresh = Fresh()
        super().__init__(policy, view, explain=explain)
        self._packers = PlacePackers(f"{len(self._space)}sQBIIB")
        self._gone_turn = self._reached_turn = 0
        self._move_to(lanes.bound if self._bound == NOTHING else self._bound)

    def _move_to(self, bound: Bound) -> None:
        """Move the bound: every record whose turn is at this bound leaves, or has left."""
        self._bound, self._time_ms = bound, bound.time_ms
        self._gone_turn = self._turn_at(bound)
        """Every record leaves whose turn this is, or was before."""
        first = before_turns_at(self._held.released_through_ms + 1)
        self._reached_turn = max(self._next_turn_at(bound), first)
        """Every record that arrives with an earlier turn comes behind it."""

    def _turn_at(self, bound: tuple[int, int]) -> int:
        """Return the last turn that a bound has passed."""
        return turn_of(bound[0] - self._policy.grace_ms, bound[1])

    def _next_turn_at(self, bound: Bound) -> int:
        """Return the turn at which the slowest lane may go on, or all lanes if they were idle."""
        if bound.partition >= PARTITION_MAX:
            return before_turns_at(bound.time_ms - self._policy.grace_ms)
        return self._turn_at(bound)

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

    def _place_behind(self, bound: Bound) -> bytes:
        """Return the place before which all records have their turn at a bound."""
        time = pack_time(bound.time_ms - self._policy.grace_ms)
        if bound.partition >= PARTITION_MAX:
            return self._space + time + _BEHIND_LANES
        return self._space + time + _IN_LANE + (bound.partition + 2).to_bytes(4, "big")

    @property
    def _held_count(self) -> int:
        return self._held.count + self._fresh.count

    @property
    def held_from_ms(self) -> int | None:
        """No held record is earlier; None where none is held."""
        found = (super().held_from_ms, self._fresh.first_ms)
        return min((time_ms for time_ms in found if time_ms is not None), default=None)

    def process(self, batch: Batch) -> Step:
        """Give every record its turn, and release those whose turn it is."""
        assert batch.origins is not None
        self.counts.taken += len(batch.records)
        step = Step(Batch([], [], origins=Origins()))
        if self._explain or not self._spills:
            self._merge_one_by_one(step, batch, batch.origins)
        else:
            leaving, causes = self._enter(step, batch.records, batch.causes, batch.origins)
            self._let_go(step, leaving, causes, batch.causes[-1] if batch.is_part else None)
        if self._spills:
            self._spill()
        self.counts.held = self._held_count
        return step

    def _spill(self) -> None:
        in_memory_max = self._bounds.in_memory_max(self._held.count, self._weight)
        if self._held.in_memory + self._fresh.count > in_memory_max:
            self._settle()
        super()._spill()

    def _merge_one_by_one(self, step: Step, batch: Batch, origins: Origins) -> None:
        """Check the buffer's bounds after every record, and give each reason one cause."""
        columns = zip(batch.records, batch.causes, origins.lanes, origins.times_ms, strict=True)
        for record, cause, lane, time_ms in columns:
            origin = Origins([lane], [time_ms])
            leaving, causes = self._enter(step, [record], [cause], origin)
            self._let_go(step, leaving, causes, cause)
            self._settle()
            if self._is_full():
                self._make_room(step, cause)
                if step.failure is not None:
                    return
        if not batch.is_part:
            self._let_go(step, [], [], None)

    def _enter(
        self, step: Step, records: list[Record], causes: list[int], origins: Origins
    ) -> tuple[list[_Leaving], list[int]]:
        """Take in records with their turns; return those behind them, and causes of the others."""
        grace_ms = self._policy.grace_ms
        if self._policy.late == "drop":
            records, causes, origins = self._on_time(step, records, causes, origins)
        turns = [
            ((own_ms if own_ms > (late_ms := time_ms - grace_ms) else late_ms) << LANE_BITS) + lane
            for own_ms, lane, time_ms in zip(
                map(_time_of, records), origins.lanes, origins.times_ms, strict=True
            )
        ]
        leaving: list[_Leaving] = []
        if turns and (self._lanes.behind or min(turns) < self._reached_turn):
            is_behind = list(map(self._is_behind, turns, causes))
            if any(is_behind):
                columns = zip(is_behind, causes, records, strict=True)
                leaving = [(cause, None, record) for so, cause, record in columns if so]
                in_turn = [not so for so in is_behind]
                turns, records, causes = only(in_turn, (turns, records, causes))
        if turns:
            self.latest_ms = max(self.latest_ms, time_of(self._fresh.add(turns, records)))
            if self._explain and turns[0] > self._gone_turn:
                self._decide(step, records, Verdict.HELD, Reason.WITHIN_GRACE, causes[0])
        return leaving, causes

    def _is_behind(self, turn: int, cause: int) -> bool:
        if turn < self._reached_turn:
            return True
        lanes = self._lanes
        return cause in lanes.behind and turn < self._next_turn_at(lanes.bound_before(cause))

    def _on_time(
        self, step: Step, records: list[Record], causes: list[int], origins: Origins
    ) -> tuple[list[Record], list[int], Origins]:
        """Drop records that are late; return the others, their causes and origins."""
        grace_ms = self._policy.grace_ms
        is_on_time = [
            record[2] >= time_ms - grace_ms
            for record, time_ms in zip(records, origins.times_ms, strict=True)
        ]
        if all(is_on_time):
            return records, causes, origins
        for at in (at for at, is_so in enumerate(is_on_time) if not is_so):
            self._put_aside(step, records[at], causes[at], origins.times_ms[at])
        records, causes, *columns = only(
            is_on_time, (records, causes, origins.lanes, origins.times_ms)
        )
        return records, causes, Origins(*columns)

    def _settle(self) -> None:
        """Give the records that came since the last save their places in the buffer."""
        arrived = self._fresh.take_all()
        if not arrived:
            return
        turns, records = list(map(_turn_of, arrived)), list(map(_record_of, arrived))
        # Most records go before they come here, and weighing costs as much as the rest of a turn.
        self._weigh(records, 1)
        times_ms = list(map(time_of, turns))
        places = self._places_of(records, list(map(lane_of, turns)), times_ms)
        self._held.add_many(list(zip(places, records, strict=True)), times_ms)

    def _places_of(
        self, records: list[Record], lanes: list[int], times_ms: list[int]
    ) -> list[bytes]:
        """Return the place of each record."""
        space, packers, bias = self._space, self._packers, TIME_BIAS
        first, end = self._arrivals, self._arrivals + len(records)
        self._arrivals = end % _ARRIVALS
        numbers: Iterable[int] = range(first, end)
        if end > _ARRIVALS:
            numbers = (number % _ARRIVALS for number in numbers)
        return [
            packers[len(key)](space, time_ms + bias, 2, lane + 1, number, 1, key)
            if (key := record[0]) is not None
            else packers[0](space, time_ms + bias, 2, lane + 1, number, 0, b"")
            for record, lane, time_ms, number in zip(records, lanes, times_ms, numbers, strict=True)
        ]

    def _turn_of_place(self, place: bytes) -> int:
        """Return the turn of a record in the buffer; an order of a reorder is before all lanes."""
        time_at = len(self._space)
        time_ms = unpack_time(place, time_at)
        order = place[time_at + 8 :]
        if order[:1] != _IN_LANE:
            return before_turns_at(time_ms)
        return turn_of(time_ms, int.from_bytes(order[1:5], "big") - 1)

    def _let_go(
        self, step: Step, leaving: list[_Leaving], came: list[int], until: int | None
    ) -> None:
        """Release all records whose turn it is by a cause, or by the end of the batch.

        `came` are the causes of the records that came in turn with the batch.
        """
        gone_turn = self._gone_turn
        moved_by, bounds = self._lanes.steps_behind(self._bound, until)
        held: list[Entry[Record]] = []
        if moved_by:
            self._move_to(self._lanes.bound if until is None else self._lanes.bound_at(until))
            held = self._held.release_before(self._place_behind(self._bound))
            self._weigh([record for _, record in held], -1)
        released = self._fresh.release_through(self._gone_turn)
        if held:
            turn_of_place = self._turn_of_place
            before = [(turn_of_place(place), record, FROM_DISK) for place, record in held]
            released = sorted(before + released, key=_turn_of)
        if self._held_count == 0:
            self._arrivals = 0
        if not released and not leaving:
            return
        records = list(map(_record_of, released))
        grace_ms = self._policy.grace_ms
        gone_at = [((time_ms - grace_ms) << LANE_BITS) + lane for time_ms, lane in bounds]
        causes = causes_of(released, gone_turn, moved_by, gone_at)
        if came:
            causes = not_before(released, causes, self._fresh.first_of_batch, came)
        if not leaving and not self._goes_by_turn and causes == sorted(causes):
            self._forward(step, records, causes)
            return
        times_ms = [time_of(turn) for turn, _, _ in released]
        leaving += zip(causes, times_ms, records, strict=True)
        leaving.sort(key=_cause_of)
        self._leave(step, leaving)

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

    def save(self) -> None:
        """Put the held records, and the header."""
        self._settle()
        super().save()

    def advance(self, time_ms: int) -> Step:
        """Do nothing: lanes say how far their sources are, and records leave by that."""
        del time_ms
        return Step(Batch([], [], origins=Origins()))

    def release_idle(self) -> Step:
        """Release everything, because the source was silent for as long as the policy allows."""
        self._settle()
        step = Step(Batch([], [], origins=Origins()))
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
