"""Deduplicate: forward the first record of an id, drop the others within the interval (KIP-655).

The first received wins; a dropped duplicate leaves no trace. Both ends of the interval count, on
both sides of the record. A record older than stream time less the interval is late: it is dropped
if its duplicate is still known, otherwise it follows the late policy and is not remembered.
A record without id is forwarded. A saved record that is read again after a crash is forwarded
again. Rules K1 to K9.

State
    0x00                      stream time (8) | how long a segment is (8) | for each length that
                              segments had before, and that is still looked for: length (8), the
                              first and the last time of its rows (8 each)
    0x01 segment (8) id       timestamp (8) | offset (8, left out where there is none)
                              id = the key; by key and id: length of the key (4) | key | id.
                              A segment is a stretch of time a little longer than the interval
                              that the pipeline began with; a new interval moves no row (see
                              `segments`).

At most one entry of an id is live, and it is in one of the two latest segments. So two look-ups
answer every question, and a bloom filter nearly always stops one of them. A purge drops a whole
segment. A time index would write, and later delete, a second row for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from struct import Struct

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.errors import StateCorrupt
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.operator import Aside, Batch, Counts, Step, View
from headrace.services.operators.readable import read_batch
from headrace.services.operators.rows import pack_time, unpack_time
from headrace.services.operators.segments import (
    GROWTH_MAX,
    Segments,
    pack_segments,
    unpack_segments,
)
from headrace.services.operators.sweep import Sweep

Select = Callable[[Record], bytes | None]
_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_SPACE_END = b"\x02"
_TIME_BYTES = 8
_pack_length = Struct(">I").pack
_entry = Struct(">qq")
pack_entry = _entry.pack
_time_of_entry = Struct(">q")
_pack_time_alone = _time_of_entry.pack
_ENTRY_LENGTHS = frozenset({_time_of_entry.size, _entry.size})


class Deduplicate:
    """The operator over one partition."""

    _segment_ms_min = 1_000

    def __init__(
        self, policy: DeduplicatePolicy, view: View, select: Select, *, explain: bool = False
    ) -> None:
        """Go on where an earlier instance over the view saved; `select` gives a record's id."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._policy = policy
        self._view = view
        self._id_of = id_function(policy.by, select)
        self._explain = explain
        self._header_key = view.prefix + _HEADER_KEY
        self._space = view.prefix + _SPACE
        header = view.get_many([self._header_key])[0]
        self._time_ms = NO_TIME_MS
        segment_ms = max(policy.interval_ms + 1, self._segment_ms_min)
        self._segments = Segments(segment_ms)
        if header is not None:
            time_ms = self._time_ms = unpack_time(header)
            found = unpack_segments(header, _TIME_BYTES)
            # The interval was no longer than segments could grow, and a row begins within one.
            first_ms = time_ms - (GROWTH_MAX + 1) * found.length_ms
            over_ms = time_ms - policy.interval_ms
            self._segments = found.going_on(segment_ms, over_ms, first_ms, self.latest_ms)
        self._segment_ms = self._segments.length_ms
        self._sweep = Sweep(view, self._space)

    @property
    def stream_time_ms(self) -> int:
        """The latest time of any record."""
        return self._time_ms

    @property
    def has_formers(self) -> bool:
        """Whether ids are looked for in segments of former lengths as well."""
        return bool(self._segments.formers)

    @property
    def latest_ms(self) -> int:
        """No id was ever remembered at a later time."""
        return self._time_ms

    def process(self, batch: Batch) -> Step:
        """Forward records with new ids, drop those with known ids."""
        step = Step(Batch([], []))
        records, causes, ids = read_batch(batch, self._id_of, self.name, step, self.counts)
        known = self._recall(ids)
        rows: dict[bytes, bytes | None] = {}
        out, because = step.forwarded.records.append, step.forwarded.causes.append
        explain, forward_late = self._explain, self._policy.late == "forward"
        interval_ms, time_ms = self._policy.interval_ms, self._time_ms
        prefix, prefix_from_ms, prefix_to_ms = b"", 0, 0
        for record, record_id, cause in zip(records, ids, causes, strict=True):
            timestamp_ms = record[2]
            if timestamp_ms > time_ms:
                time_ms = self._time_ms = timestamp_ms
            reason = Reason.FIRST
            if record_id is None:
                reason = Reason.NULL_ID
            elif record_id in known and (why := self._compare(record, known[record_id])):
                reason = why
                if reason is Reason.DUPLICATE:
                    self._stop(step, record, cause, reason, known[record_id])
                    continue
            elif timestamp_ms >= time_ms - interval_ms:
                if not prefix_from_ms <= timestamp_ms < prefix_to_ms:
                    prefix_from_ms = timestamp_ms // self._segment_ms * self._segment_ms
                    prefix_to_ms = prefix_from_ms + self._segment_ms
                    prefix = self._space + pack_time(prefix_from_ms)
                entry = entry_of(timestamp_ms, record[6])
                known[record_id] = rows[prefix + record_id] = entry
            else:
                reason = Reason.PAST_INTERVAL
                if not forward_late:
                    self._stop(step, record, cause, reason)
                    continue
            out(record)
            because(cause)
            if explain:
                self._decide(step, record, Verdict.FORWARDED, reason, cause)
        self.counts.forwarded += len(step.forwarded.records)
        self._view.put_many(rows)
        self._sweep.count(len(rows))
        self._sweep.up_to(self._prefix(self._oldest_live_start_ms()))
        return step

    def _stop(
        self, step: Step, record: Record, cause: int, reason: Reason, first: bytes | None = None
    ) -> None:
        """Drop a duplicate; drop a late record, or send it to the late topic."""
        verdict = Verdict.DROPPED
        if reason is Reason.PAST_INTERVAL and self._policy.late == "topic":
            verdict = Verdict.LATE
            self.counts.late += 1
            by_ms = self._time_ms - self._policy.interval_ms - record.timestamp_ms
            detail = f"{by_ms} ms past the interval of {self._policy.interval_ms} ms"
            step.late.append(Aside(cause, self.name, record, reason, detail))
        else:
            self.counts.drop(reason)
        if self._explain:
            self._decide(step, record, verdict, reason, cause, first)

    def _compare(self, record: Record, entry: bytes) -> Reason | None:
        """Return DUPLICATE or REPLAY if the entry matches the record, None if it does not."""
        interval_ms = self._policy.interval_ms
        saved_ms = _time_of_entry.unpack_from(entry)[0]
        if (
            saved_ms < self._time_ms - interval_ms
            or abs(record.timestamp_ms - saved_ms) > interval_ms
        ):
            return None
        if len(entry) == _entry.size and record.offset == _entry.unpack(entry)[1]:
            return Reason.REPLAY
        return Reason.DUPLICATE

    def _recall(self, ids: list[bytes | None]) -> dict[bytes, bytes]:
        """Return the latest entry of each id, from the segments that can hold a live one."""
        wanted = [record_id for record_id in dict.fromkeys(ids) if record_id is not None]
        known: dict[bytes, bytes] = {}
        oldest_ms = self._time_ms - self._policy.interval_ms
        for start_ms in self._segments.starts(oldest_ms, self._time_ms):
            prefix = self._prefix(start_ms)
            entries = self._view.get_many([prefix + record_id for record_id in wanted])
            found = zip(wanted, entries, strict=True)
            known |= {record_id: entry for record_id, entry in found if entry is not None}
        check_entries(known.values())
        return known

    def _oldest_live_start_ms(self) -> int:
        return self._segments.first_start(self._time_ms - self._policy.interval_ms)

    def _prefix(self, start_ms: int) -> bytes:
        return self._space + pack_time(start_ms)

    def live_ids(self) -> Iterator[tuple[bytes, int]]:
        """Yield every id that is remembered now, with its timestamp; a scan, for people."""
        oldest_ms = self._time_ms - self._policy.interval_ms
        for row_key, entry in self._view.range(self._space, self._view.prefix + _SPACE_END):
            saved_ms = _time_of_entry.unpack_from(entry)[0]
            if saved_ms >= oldest_ms:
                yield row_key[len(self._space) + 8 :], saved_ms

    def save(self) -> None:
        """Put the header; the entries were put with their batch."""
        header = pack_time(self._time_ms) + pack_segments(self._segments)
        self._view.put_many({self._header_key: header})

    def _decide(
        self,
        step: Step,
        record: Record,
        verdict: Verdict,
        reason: Reason,
        cause: int,
        first: bytes | None = None,
    ) -> None:
        evidence = [("stream_time_ms", self._time_ms), ("interval_ms", self._policy.interval_ms)]
        if first is not None:
            evidence.append(("first_timestamp_ms", _time_of_entry.unpack_from(first)[0]))
            if len(first) == _entry.size:
                evidence.append(("first_offset", _entry.unpack(first)[1]))
        decision = Decision(self.name, record, verdict, reason, tuple(evidence), cause)
        step.decisions.append(decision)


def entry_of(timestamp_ms: int, offset: int | None) -> bytes:
    """Pack the entry of a record's id."""
    return _pack_time_alone(timestamp_ms) if offset is None else pack_entry(timestamp_ms, offset)


def check_entries(entries: Iterable[bytes]) -> None:
    """Refuse entries that are not whole."""
    if not _ENTRY_LENGTHS.issuperset(map(len, entries)):
        message = "an id's row is cut short"
        raise StateCorrupt(message)


def id_function(by: str, select: Select) -> Select:
    """Return a function that gives a record's id for comparing, None where a record has none."""
    if by == "key":
        return itemgetter(0)
    if by == "id":
        return select

    def key_and_id(record: Record) -> bytes | None:
        key = record.key
        record_id = None if key is None else select(record)
        if key is None or record_id is None:
            return None
        return _pack_length(len(key)) + key + record_id

    return key_and_id
