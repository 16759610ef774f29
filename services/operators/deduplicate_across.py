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

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from operator import itemgetter

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from headrace.services.operators.deduplicate import Deduplicate, Select, check_entries, entry_of
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch, Step, View
from headrace.services.operators.readable import read_batch

_SEGMENTS_MAX = 1_000
_SEGMENTS_AT_ONCE = 3
"""As many as one record may need."""
_time_of = itemgetter(2)


class _Prefixes(dict[int, bytes]):
    """Maps a segment to the prefix of its rows; the same few are asked for again and again."""

    def __init__(self, prefix_of: Callable[[int], bytes]) -> None:
        super().__init__()
        self._prefix_of = prefix_of

    def __missing__(self, segment: int) -> bytes:
        if len(self) >= _SEGMENTS_MAX:
            self.clear()
        prefix = self[segment] = self._prefix_of(segment)
        return prefix


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
        super().__init__(policy, view, select, explain=explain)
        self._lanes = lanes
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
        times_ms = self._times_ms(batch, records, causes)
        known, seen = self._known(records, ids, times_ms)
        interval_ms, segment_ms = self._policy.interval_ms, self._segment_ms
        prefixes, explain = self._prefixes, self._explain
        rows: dict[bytes, bytes | None] = {}
        out, because = step.forwarded.records.append, step.forwarded.causes.append
        for record, record_id, cause, time_ms in zip(records, ids, causes, times_ms, strict=True):
            timestamp_ms, reason = record[2], Reason.FIRST
            if record_id is None:
                reason = Reason.NULL_ID
            elif record_id in seen and (twin := self._twin(record, record_id, time_ms, known)):
                reason, first = twin
                if reason is Reason.DUPLICATE:
                    self._stop_at(time_ms, step, record, cause, reason, first)
                    continue
            elif timestamp_ms >= time_ms - interval_ms:
                place = prefixes[timestamp_ms // segment_ms] + record_id
                known[place] = rows[place] = entry_of(timestamp_ms, record[6])
                seen.add(record_id)
            else:
                reason = Reason.PAST_INTERVAL
                if self._policy.late != "forward":
                    self._stop_at(time_ms, step, record, cause, reason)
                    continue
            out(record)
            because(cause)
            if explain:
                self._time_ms = time_ms
                self._decide(step, record, Verdict.FORWARDED, reason, cause)
        self.counts.forwarded += len(step.forwarded.records)
        self._view.put_many(rows)
        # Record by record, those that come next may be duplicates of what is over behind the last.
        bound = self._lanes.bound_at(batch.causes[-1]) if batch.is_part else self._lanes.bound
        self._time_ms = self._over_ms = max(self._over_ms, bound.time_ms)
        self._sweep.count(len(rows))
        self._sweep.up_to(self._prefix(self._oldest_live_segment()))
        return step

    def _times_ms(self, batch: Batch, records: list[Record], causes: list[int]) -> list[int]:
        """Return the time by which each record is judged: that of its own partition with it."""
        origins = batch.origins
        assert origins is not None
        if len(records) < len(batch.records):
            of_cause = dict(zip(batch.causes, origins, strict=True))
            origins = [of_cause[cause] for cause in causes]
        return [
            max(record[2], time_ms)
            for record, (_, _, time_ms) in zip(records, origins, strict=True)
        ]

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
        for segment in self._segments(record, time_ms):
            entry = known.get(self._prefixes[segment] + record_id)
            if entry is not None and (why := self._compare(record, entry)):
                return why, entry
        return None

    def _segments(self, record: Record, time_ms: int) -> range:
        """Return the segments in which a record's duplicates may have their entries."""
        interval_ms, segment_ms = self._policy.interval_ms, self._segment_ms
        last_ms = min(record[2] + interval_ms, self._lanes.latest_ms)
        return range((time_ms - interval_ms) // segment_ms, last_ms // segment_ms + 1)

    def _known(
        self, records: list[Record], ids: list[bytes | None], times_ms: list[int]
    ) -> tuple[dict[bytes, bytes], set[bytes]]:
        """Return the entries of which a record may be a duplicate, by place; and all their ids.

        There may be more, which are too far from any record.
        """
        known: dict[bytes, bytes] = {}
        seen: set[bytes] = set()
        for segment, wanted in self._wanted(records, ids, times_ms).items():
            prefix = self._prefixes[segment]
            places = [prefix + record_id for record_id in wanted]
            for record_id, place, entry in zip(
                wanted, places, self._view.get_many(places), strict=True
            ):
                if entry is not None:
                    known[place] = entry
                    seen.add(record_id)
        check_entries(known.values())
        return known, seen

    def _wanted(
        self, records: list[Record], ids: list[bytes | None], times_ms: list[int]
    ) -> Mapping[int, Collection[bytes]]:
        """Return, by segment, the ids that may have a duplicate's entry there."""
        if not records:
            return {}
        interval_ms, segment_ms = self._policy.interval_ms, self._segment_ms
        last_ms = min(max(map(_time_of, records)) + interval_ms, self._lanes.latest_ms)
        first, last = (min(times_ms) - interval_ms) // segment_ms, last_ms // segment_ms
        if last - first < _SEGMENTS_AT_ONCE:
            # Most batches are short in time: all ids are looked for in the same few segments.
            wanted = {record_id: None for record_id in ids if record_id is not None}
            return dict.fromkeys(range(first, last + 1), wanted)
        by_segment: dict[int, dict[bytes, None]] = defaultdict(dict)
        for record, record_id, time_ms in zip(records, ids, times_ms, strict=True):
            if record_id is not None:
                for segment in self._segments(record, time_ms):
                    by_segment[segment][record_id] = None
        return by_segment
