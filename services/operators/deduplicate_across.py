"""Deduplicate by id behind a repartition: over records of many source partitions, in any order.

Records are compared by when they happened, not by when they were read. A record is judged by the
time of its own partition. It is compared with every entry of its id that is at most the interval
away, also with entries of partitions that are far ahead. So of two records that are no further
apart than the interval one goes out, whichever was read first. An entry is over once all lanes that
are awake have passed it by the interval (see `lanes`).

The rows are those of `deduplicate`. A segment holds one entry of an id, since two entries in one
segment would be duplicates. Partitions that are far apart have their entries in different segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter, sub
from typing import Any, NamedTuple

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from headrace.services.operators.deduplicate import (
    Deduplicate,
    Select,
    check_entries,
    entry_of,
    pack_entry,
)
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch, Origins, Step, View
from headrace.services.operators.readable import only, read_batch

_SEGMENTS_MAX = 1_000
_SEGMENTS_AT_ONCE = 3
"""As many as one record may need."""
_time_of = itemgetter(2)
_offset_of = itemgetter(6)


class _Prefixes(dict[int, bytes]):
    """Maps a segment's start to the prefix of its rows; the same few are asked for again."""

    def __init__(self, prefix_of: Callable[[int], bytes]) -> None:
        super().__init__()
        self._prefix_of = prefix_of

    def __missing__(self, start_ms: int) -> bytes:
        if len(self) >= _SEGMENTS_MAX:
            self.clear()
        prefix = self[start_ms] = self._prefix_of(start_ms)
        return prefix


class _Known(NamedTuple):
    """Entries of the ids of a batch."""

    entries: dict[bytes, bytes]
    """By place; there may be more, which are too far from any record."""
    ids: set[bytes | None]
    """All ids of these entries."""
    asked: dict[int, list[bytes]]
    """By a segment's start, the places in it, if each record has an id of its own and all were
    looked for."""
    rows: dict[bytes, bytes | None]
    """The entries that the batch adds."""


class DeduplicateAcross(Deduplicate):
    """The operator over one partition behind a repartition."""

    _segment_ms_min = 1

    def __init__(
        self,
        policy: DeduplicatePolicy,
        view: View,
        select: Select,
        lanes: Lanes,
        *,
        explain: bool = False,
    ) -> None:
        """Go on where an earlier instance over the view saved; lanes say which entries are over."""
        self._lanes = lanes
        super().__init__(policy, view, select, explain=explain)
        self._prefixes = _Prefixes(self._prefix)
        self._over_ms = self._time_ms
        """The time that all lanes have passed, as far as this operator went by it."""

    @property
    def stream_time_ms(self) -> int:
        """The time that all lanes that are awake have passed."""
        return self._over_ms

    @property
    def latest_ms(self) -> int:
        """No id was ever remembered at a later time."""
        return self._lanes.latest_ms

    def process(self, batch: Batch) -> Step:
        """Forward records with new ids, drop those with known ids."""
        step = Step(Batch([], []))
        records, causes, ids = read_batch(batch, self._id_of, self.name, step, self.counts)
        if records:
            times_ms = self._times_ms(batch, records, causes)
            leaves = self._compare_all(step, records, causes, ids, times_ms)
            if leaves and batch.origins is not None and len(leaves) == len(batch.records):
                lanes, lane_times_ms = only(leaves, (batch.origins.lanes, batch.origins.times_ms))
                step.forwarded.origins = Origins(lanes, lane_times_ms)
        # Record by record, those that come next may be duplicates of what is over behind the last.
        bound = self._lanes.bound_at(batch.causes[-1]) if batch.is_part else self._lanes.bound
        self._time_ms = self._over_ms = max(self._over_ms, bound.time_ms)
        self._sweep.up_to(self._prefix(self._oldest_live_start_ms()))
        return step

    def _compare_all(
        self,
        step: Step,
        records: list[Record],
        causes: list[int],
        ids: list[bytes | None],
        times_ms: list[int],
    ) -> list[bool]:
        """Remember new ids; forward records that have one, and treat the others one by one.

        Most records have an id that no other record has, and are decided together. Returns whether
        each leaves; nothing if all do.
        """
        known = self._known(records, ids, times_ms)
        others = known.ids | {None}
        if len(set(ids)) < len(ids):
            others.update(record_id for record_id, count in Counter(ids).items() if count > 1)
        stamps_ms = list(map(_time_of, records))
        if self._explain or min(map(sub, stamps_ms, times_ms)) < -self._policy.interval_ms:
            leaves = [False] * len(ids)
        elif others.isdisjoint(ids):
            leaves = []
            known.rows.update(self._rows_of(records, ids, stamps_ms, known.asked))
            step.forwarded = Batch(records, causes)
        else:
            leaves = [record_id not in others for record_id in ids]
            new, new_ids, new_stamps_ms = only(leaves, (records, ids, stamps_ms))
            known.rows.update(self._rows_of(new, new_ids, new_stamps_ms, {}))
        if leaves:
            for at in [at for at, is_new in enumerate(leaves) if not is_new]:
                one = records[at], ids[at], causes[at], times_ms[at]
                leaves[at] = self._leaves(step, *one, known)
            leaving, because = only(leaves, (records, causes))
            step.forwarded = Batch(leaving, because)
        self.counts.forwarded += len(step.forwarded.records)
        self._view.put_many(known.rows)
        self._sweep.count(len(known.rows))
        return leaves

    def _rows_of(
        self,
        records: list[Record],
        ids: list[bytes | None],
        stamps_ms: list[int],
        asked: Mapping[int, list[bytes]],
    ) -> dict[bytes, bytes | None]:
        """Return the rows of new ids; their places in a segment, if they were asked for."""
        segment_ms, prefixes = self._segment_ms, self._prefixes
        start_ms = min(stamps_ms, default=0) // segment_ms * segment_ms
        if start_ms in asked and max(stamps_ms) < start_ms + segment_ms:
            places = asked[start_ms]
        else:
            places = [
                prefixes[stamp_ms - stamp_ms % segment_ms] + (record_id or b"")
                for record_id, stamp_ms in zip(ids, stamps_ms, strict=True)
            ]
        offsets: Any = list(map(_offset_of, records))
        pack = entry_of if None in offsets else pack_entry
        return dict(zip(places, map(pack, stamps_ms, offsets), strict=True))

    def _leaves(
        self,
        step: Step,
        record: Record,
        record_id: bytes | None,
        cause: int,
        time_ms: int,
        known: _Known,
    ) -> bool:
        """Return whether one record is forwarded; drop or put it aside if it is not."""
        timestamp_ms, reason = record[2], Reason.FIRST
        if record_id is None:
            reason = Reason.NULL_ID
        elif twin := self._twin(record, record_id, time_ms, known.entries):
            reason, first = twin
            if reason is Reason.DUPLICATE:
                self._stop_at(time_ms, step, record, cause, reason, first)
                return False
        elif timestamp_ms >= time_ms - self._policy.interval_ms:
            place = self._prefixes[timestamp_ms - timestamp_ms % self._segment_ms] + record_id
            known.entries[place] = known.rows[place] = entry_of(timestamp_ms, record[6])
        else:
            reason = Reason.PAST_INTERVAL
            if self._policy.late != "forward":
                self._stop_at(time_ms, step, record, cause, reason)
                return False
        if self._explain:
            self._time_ms = time_ms
            self._decide(step, record, Verdict.FORWARDED, reason, cause)
        return True

    def _times_ms(self, batch: Batch, records: list[Record], causes: list[int]) -> list[int]:
        """Return the time by which each record is judged: that of its own partition with it."""
        origins = batch.origins
        assert origins is not None
        if len(records) < len(batch.records):
            origins = batch.origins_of(causes)
        if min(map(sub, origins.times_ms, map(_time_of, records))) >= 0:
            return origins.times_ms
        return list(map(max, origins.times_ms, map(_time_of, records)))

    def _stop_at(
        self,
        time_ms: int,
        step: Step,
        record: Record,
        cause: int,
        reason: Reason,
        first: bytes | None = None,
    ) -> None:
        self._time_ms = time_ms
        self._stop(step, record, cause, reason, first)

    def _twin(
        self, record: Record, record_id: bytes, time_ms: int, known: dict[bytes, bytes]
    ) -> tuple[Reason, bytes] | None:
        """Return why a record is known at its time, and by which entry; None if it is not."""
        self._time_ms = time_ms
        for start_ms in self._starts_near(record, time_ms):
            entry = known.get(self._prefixes[start_ms] + record_id)
            if entry is not None and (why := self._compare(record, entry)):
                return why, entry
        return None

    def _starts_near(self, record: Record, time_ms: int) -> Sequence[int]:
        """Return where segments start in which a record's duplicates may have their entries."""
        interval_ms = self._policy.interval_ms
        last_ms = min(record[2] + interval_ms, self._lanes.latest_ms)
        return self._segments.starts(time_ms - interval_ms, last_ms)

    def _known(self, records: list[Record], ids: list[bytes | None], times_ms: list[int]) -> _Known:
        """Return what is known of these ids."""
        known: dict[bytes, bytes] = {}
        seen: set[bytes | None] = set()
        asked: dict[int, list[bytes]] = {}
        for start_ms, wanted in self._wanted(records, ids, times_ms).items():
            prefix = self._prefixes[start_ms]
            places = [prefix + record_id for record_id in wanted]
            if len(places) == len(ids):
                asked[start_ms] = places
            entries = self._view.get_many(places)
            if entries.count(None) == len(entries):
                continue
            for record_id, place, entry in zip(wanted, places, entries, strict=True):
                if entry is not None:
                    known[place] = entry
                    seen.add(record_id)
        check_entries(known.values())
        return _Known(known, seen, asked, {})

    def _wanted(
        self, records: list[Record], ids: list[bytes | None], times_ms: list[int]
    ) -> Mapping[int, Collection[bytes]]:
        """Return, by a segment's start, the ids that may have a duplicate's entry there."""
        interval_ms, segment_ms = self._policy.interval_ms, self._segment_ms
        last_ms = min(max(map(_time_of, records)) + interval_ms, self._lanes.latest_ms)
        first_ms = min(times_ms) - interval_ms
        if last_ms // segment_ms - first_ms // segment_ms < _SEGMENTS_AT_ONCE:
            # Most batches are short in time: all ids are looked for in the same few segments.
            wanted: dict[Any, None] = dict.fromkeys(ids)
            wanted.pop(None, None)
            return dict.fromkeys(self._segments.starts(first_ms, last_ms), wanted)
        by_segment: dict[int, dict[bytes, None]] = defaultdict(dict)
        for record, record_id, time_ms in zip(records, ids, times_ms, strict=True):
            if record_id is not None:
                for start_ms in self._starts_near(record, time_ms):
                    by_segment[start_ms][record_id] = None
        return by_segment
