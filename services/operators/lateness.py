"""Counts how late records come."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.contracts.record import NO_TIME_MS
from headrace.services.operators.operator import Batch


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
        pairs = zip(batch.records, batch.origins, strict=True)
        lates_ms = [time_ms - record[2] for record, (_, _, time_ms) in pairs if time_ms > record[2]]
        self.sum_ms += sum(lates_ms)
        self.max_ms = max(self.max_ms, *lates_ms, 0)
        self.records += len(batch.records)
        self.time_ms = max(self.time_ms, latest_ms)
