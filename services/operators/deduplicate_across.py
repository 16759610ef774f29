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

from collections.abc import Callable

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from headrace.services.operators.deduplicate import Deduplicate, Select, check_entries, entry_of
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch, Step, View
from headrace.services.operators.readable import read_batch

_SEGMENTS_MAX = 1_000


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
        assert batch.origins is not None
        step = Step(Batch([], []))
        records, causes, ids = read_batch(batch, self._id_of, self.name, step, self.counts)
        origins = batch.origins
        if len(records) < len(batch.records):
            of_cause = dict(zip(batch.causes, origins, strict=True))
            origins = [of_cause[cause] for cause in causes]
        times_ms = [
            max(origin[2], record[2]) for origin, record in zip(origins, records, strict=True)
        ]
        places = self._places(records, ids, times_ms)
        known = self._entries(places)
        interval_ms, forwards_late = self._policy.interval_ms, self._policy.late == "forward"
        rows: dict[bytes, bytes | None] = {}
        out, because = step.forwarded.records.append, step.forwarded.causes.append
        for record, record_id, cause, time_ms, of_id in zip(
            records, ids, causes, times_ms, places, strict=True
        ):
            # Comparisons and decisions below go by this time.
            self._time_ms = time_ms
            reason, first = Reason.FIRST, None
            if record_id is None:
                reason = Reason.NULL_ID
            else:
                for place in of_id:
                    if place in known and (why := self._compare(record, known[place])):
                        reason, first = why, known[place]
                        break
                else:
                    if record[2] < time_ms - interval_ms:
                        reason = Reason.PAST_INTERVAL
            if reason is Reason.DUPLICATE or (reason is Reason.PAST_INTERVAL and not forwards_late):
                self._stop(step, record, cause, reason, first)
                continue
            if reason is Reason.FIRST and record_id is not None:
                place = self._prefixes[record[2] // self._segment_ms] + record_id
                known[place] = rows[place] = entry_of(record[2], record[6])
            out(record)
            because(cause)
            if self._explain:
                self._decide(step, record, Verdict.FORWARDED, reason, cause)
        self.counts.forwarded += len(step.forwarded.records)
        self._view.put_many(rows)
        self._time_ms = self._over_ms = max(self._over_ms, self._lanes.bound.time_ms)
        self._sweep.count(len(rows))
        self._sweep.up_to(self._prefix(self._oldest_live_segment()))
        return step

    def _places(
        self, records: list[Record], ids: list[bytes | None], times_ms: list[int]
    ) -> list[list[bytes]]:
        """Return the row keys at which each record's duplicates may have their entries."""
        interval_ms, segment_ms = self._policy.interval_ms, self._segment_ms
        latest_ms, prefixes = self._lanes.latest_ms, self._prefixes
        return [
            []
            if record_id is None
            else [
                prefixes[segment] + record_id
                for segment in range(
                    (time_ms - interval_ms) // segment_ms,
                    min(record[2] + interval_ms, latest_ms) // segment_ms + 1,
                )
            ]
            for record, record_id, time_ms in zip(records, ids, times_ms, strict=True)
        ]

    def _entries(self, places: list[list[bytes]]) -> dict[bytes, bytes]:
        wanted = sorted({place for of_record in places for place in of_record})
        entries = zip(wanted, self._view.get_many(wanted), strict=True)
        known = {place: entry for place, entry in entries if entry is not None}
        check_entries(known.values())
        return known
