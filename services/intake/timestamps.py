"""Give every record its event time, and stop records that would spoil the time of all others.

Stream time only ever moves forward. So one record from the year 2099 would make all that follow
late, close every window and purge every id. With `max-future` such a record is dead instead. A
negative timestamp is always dead: no window begins before zero, and Kafka means "none" by it. A
timestamp too large for some reader is dead, too, and so is a record whose headers cannot be kept.
No record is lost: a dead one keeps its bytes and goes to the dead-letter topic.

The clock is an argument. The same records and the same `now_ms` give the same batch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from headrace.contracts.dead_letter import INTAKE
from headrace.contracts.decision import Reason
from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.pipeline import Source
from headrace.contracts.record import Headers, Record
from headrace.contracts.selector_text import RECORD_TIMESTAMP, parse_selector
from headrace.contracts.selectors import select_timestamp_ms
from headrace.contracts.serde.json import ReadField, decode_json_field
from headrace.contracts.time import EVENT_TIME_MS_MAX
from headrace.services.operators.operator import Aside, Batch
from headrace.services.operators.readable import dead_aside

_timestamp_of, _headers_of = itemgetter(2), itemgetter(3)
AHEAD_MS = 3_600_000
"""Without `max-future`, records further ahead of the clock are taken, counted and reported."""
_HEADERS_MAX = (1 << 16) - 1
"""The headers that a record's row has room for; one is left for an operator to add."""


class Timestamps:
    """The event times of one source."""

    def __init__(self, source: Source, read: ReadField = decode_json_field) -> None:
        """Read event times where the source says they are."""
        self._select: Callable[[Record], int] | None = None
        self._is_in_value = False
        if source.timestamp != RECORD_TIMESTAMP:
            self._select = select_timestamp_ms(source.timestamp, read)
            self._is_in_value = parse_selector(source.timestamp).place == "value"
        self._max_future_ms = source.max_future_ms
        self.taken = 0
        self.ahead = 0
        """Records that were taken, and moved stream time far ahead of the clock."""
        self.dead: dict[Reason, int] = {}

    def take(self, records: list[Record], now_ms: int) -> tuple[Batch, list[Aside]]:
        """Return the batch for the chain, and the records that are dead at the door.

        A cause in the batch is the index in `records`, so dead records leave gaps.
        """
        self.taken += len(records)
        latest_ms = EVENT_TIME_MS_MAX
        if self._max_future_ms is not None:
            latest_ms = min(latest_ms, now_ms + self._max_future_ms)
        if self._select is None and _all_keepable(records):
            times_ms = list(map(_timestamp_of, records))
            last_ms = max(times_ms, default=0)
            if last_ms <= latest_ms and min(times_ms, default=0) >= 0:
                self._count_ahead(times_ms, last_ms, now_ms)
                return Batch.of(records), []
        batch, dead = self._take_each(records, now_ms, latest_ms)
        times_ms = list(map(_timestamp_of, batch.records))
        self._count_ahead(times_ms, max(times_ms, default=0), now_ms)
        return batch, dead

    def _count_ahead(self, times_ms: list[int], last_ms: int, now_ms: int) -> None:
        ahead_ms = now_ms + AHEAD_MS
        if last_ms > ahead_ms and self._max_future_ms is None:
            self.ahead += sum(time_ms > ahead_ms for time_ms in times_ms)

    def _take_each(
        self, records: list[Record], now_ms: int, latest_ms: int
    ) -> tuple[Batch, list[Aside]]:
        batch = Batch([], [])
        dead: list[Aside] = []
        for cause, record in enumerate(records):
            try:
                timed = self._timed(record)
            except RecordUndecodable as undecodable:
                dead.append(dead_aside(cause, INTAKE, record, undecodable))
                continue
            problem = _problem(timed.timestamp_ms, now_ms, latest_ms) or _unkept(record.headers)
            if problem is None:
                batch.append(timed, cause, None)
            else:
                dead.append(Aside(cause, INTAKE, record, *problem))
        for aside in dead:
            self.dead[aside.reason] = self.dead.get(aside.reason, 0) + 1
        return batch, dead

    def _timed(self, record: Record) -> Record:
        """Return the record at its event time; a tombstone keeps the time that it came with."""
        if self._select is None or (self._is_in_value and record.value is None):
            return record
        return record._replace(timestamp_ms=self._select(record))


def _all_keepable(records: list[Record]) -> bool:
    """Return whether all headers can be kept; most records have none."""
    return not any(map(_unkept, filter(None, map(_headers_of, records))))


def _unkept(headers: Headers) -> tuple[Reason, str] | None:
    """Return why headers cannot be kept, None where they can."""
    if len(headers) >= _HEADERS_MAX:
        return Reason.UNDECODABLE, f"it has {len(headers)} headers, more than state has room for"
    for name, _ in headers:
        if not name.isascii() and not _is_text(name):
            return Reason.UNDECODABLE, "the name of one of its headers is not UTF-8"
    return None


def _is_text(name: str) -> bool:
    """Return whether a name was UTF-8; other bytes are lone surrogates, and can be written back."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(timestamp_ms: int, now_ms: int, latest_ms: int) -> tuple[Reason, str] | None:
    if timestamp_ms < 0:
        return Reason.NEGATIVE_TIMESTAMP, f"its timestamp is {timestamp_ms}"
    if timestamp_ms > EVENT_TIME_MS_MAX:
        detail = "its timestamp is behind the year 294246; perhaps it counts no milliseconds"
        return Reason.UNDECODABLE, detail
    if timestamp_ms > latest_ms:
        ahead_ms = timestamp_ms - now_ms
        allowed_ms = latest_ms - now_ms
        detail = f"its timestamp is {ahead_ms} ms ahead of the clock; {allowed_ms} ms are allowed"
        return Reason.FUTURE_TIMESTAMP, detail
    return None
