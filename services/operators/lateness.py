"""Counts how late records come."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter, sub

from headrace.contracts.record import NO_TIME_MS
from headrace.services.operators.operator import Batch

_time_of = itemgetter(2)


@dataclass(slots=True)
class Lateness:
    """How late records came, against the latest time before each (rule A6)."""

    time_ms: int = NO_TIME_MS
    records: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    def take(self, timestamps_ms: list[int]) -> None:
        """Count a batch of records; most are not late, and add nothing to the sum."""
        time_ms = self.time_ms
        for timestamp_ms in timestamps_ms:
            if timestamp_ms >= time_ms:
                time_ms = timestamp_ms
            else:
                late_ms = time_ms - timestamp_ms
                self.sum_ms += late_ms
                if late_ms > self.max_ms:
                    self.max_ms = late_ms
        self.records += len(timestamps_ms)
        self.time_ms = time_ms

    def take_across(self, batch: Batch, latest_ms: int) -> None:
        """Count a batch of records, each against the time of its own source partition."""
        assert batch.origins is not None
        lates_ms = list(map(sub, batch.origins.times_ms, map(_time_of, batch.records)))
        if min(lates_ms, default=0) < 0:
            # A partition that waits tells an earlier time than its records have.
            lates_ms = [max(0, late_ms) for late_ms in lates_ms]
        self.sum_ms += sum(lates_ms)
        late_ms = max(lates_ms, default=0)
        self.max_ms = max(self.max_ms, late_ms)
        self.records += len(batch.records)
        self.time_ms = max(self.time_ms, latest_ms)
