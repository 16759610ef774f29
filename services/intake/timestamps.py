"""Gives every record its event time, and stops those whose time would spoil everybody else's.

Stream time only ever moves forward, so one record from the year 2099 makes all that follow late,
closes every window and purges every id. With `max-future` such a record is dead instead. A
negative timestamp is always dead: no window begins before zero, and Kafka means "none" by it.
Nothing is lost: what is dead keeps its bytes and goes to the dead-letter topic.

The clock is an argument. The same records and the same `now_ms` give the same batch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from contracts.dead_letter import INTAKE
from contracts.decision import Reason
from contracts.errors import RecordUndecodable
from contracts.pipeline import Source
from contracts.record import Record
from contracts.selector_text import RECORD_TIMESTAMP, parse_selector
from contracts.selectors import select_timestamp_ms
from services.operators.operator import Aside, Batch

_timestamp_of = itemgetter(2)
_TIMESTAMP_MS_MAX = (1 << 63) - 1


class Timestamps:
    """The event times of one source."""

    def __init__(self, source: Source) -> None:
        """Read them where the source says."""
        self._select: Callable[[Record], int] | None = None
        self._is_in_value = False
        if source.timestamp != RECORD_TIMESTAMP:
            self._select = select_timestamp_ms(source.timestamp)
            self._is_in_value = parse_selector(source.timestamp).place == "value"
        self._max_future_ms = source.max_future_ms
        self.taken = 0
        self.dead: dict[Reason, int] = {}

    def take(self, records: list[Record], now_ms: int) -> tuple[Batch, list[Aside]]:
        """The batch for the chain, and the records that are dead at the door.

        A cause in the batch is the index in `records`, so dead records leave gaps.
        """
        self.taken += len(records)
        latest_ms = None if self._max_future_ms is None else now_ms + self._max_future_ms
        if self._select is None and _all_between(records, latest_ms):
            return Batch.of(records), []
        batch = Batch([], [])
        dead: list[Aside] = []
        for cause, record in enumerate(records):
            try:
                timed = self._timed(record)
            except RecordUndecodable as undecodable:
                dead.append(self._dead(cause, record, Reason.UNDECODABLE, str(undecodable)))
                continue
            problem = _problem(timed.timestamp_ms, now_ms, latest_ms)
            if problem is None:
                batch.append(timed, cause, None)
            else:
                dead.append(self._dead(cause, record, *problem))
        return batch, dead

    def _dead(self, cause: int, record: Record, reason: Reason, detail: str) -> Aside:
        self.dead[reason] = self.dead.get(reason, 0) + 1
        return Aside(cause, INTAKE, record, reason, detail)

    def _timed(self, record: Record) -> Record:
        """The record at its event time; a tombstone without value keeps the time it came with."""
        if self._select is None or (self._is_in_value and record.value is None):
            return record
        return record._replace(timestamp_ms=self._select(record))


def _all_between(records: list[Record], latest_ms: int | None) -> bool:
    """Whether no timestamp is negative, or later than allowed."""
    timestamps = list(map(_timestamp_of, records))
    if not timestamps:
        return True
    return min(timestamps) >= 0 and (latest_ms is None or max(timestamps) <= latest_ms)


def _problem(timestamp_ms: int, now_ms: int, latest_ms: int | None) -> tuple[Reason, str] | None:
    if timestamp_ms < 0:
        return Reason.NEGATIVE_TIMESTAMP, f"its timestamp is {timestamp_ms}"
    if timestamp_ms > _TIMESTAMP_MS_MAX:
        return Reason.UNDECODABLE, "its timestamp does not fit 64 bits"
    if latest_ms is not None and timestamp_ms > latest_ms:
        ahead_ms = timestamp_ms - now_ms
        allowed_ms = latest_ms - now_ms
        detail = f"its timestamp is {ahead_ms} ms ahead of the clock; {allowed_ms} ms are allowed"
        return Reason.FUTURE_TIMESTAMP, detail
    return None
