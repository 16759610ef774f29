"""The base of aggregate and distinct: stream time as their header, and verdicts that show it."""

from __future__ import annotations

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.operator import Aside, Batch, Counts, Step, View
from headrace.services.operators.rows import pack_time, unpack_time

_HEADER_KEY = b"\x00"


class Timed:
    """An operator that holds nothing, and keeps stream time (8) in the row 0x00."""

    def __init__(self, name: str, view: View, *, explain: bool) -> None:
        """Go on at the stream time that an earlier instance over the same view saved."""
        self.name = name
        self.counts = Counts(0)
        self._view = view
        self._explain = explain
        self._header_key = view.prefix + _HEADER_KEY
        header = view.get_many([self._header_key])[0]
        self._time_ms = NO_TIME_MS if header is None else unpack_time(header)

    @property
    def stream_time_ms(self) -> int:
        """The latest time of any record that counts."""
        return self._time_ms

    def advance(self, time_ms: int) -> Step:
        """Move stream time to the source's, though no record says so."""
        self._time_ms = max(self._time_ms, time_ms)
        return Step(Batch([], []))

    def save(self) -> None:
        """Put stream time; everything else was put with its batch."""
        self._view.put_many({self._header_key: pack_time(self._time_ms)})

    def _drop(self, step: Step, record: Record, cause: int, reason: Reason) -> None:
        self.counts.drop(reason)
        if self._explain:
            self._decide(step, record, Verdict.DROPPED, reason, cause)

    def _send_late(self, step: Step, record: Record, cause: int, detail: str) -> None:
        self.counts.late += 1
        step.late.append(Aside(cause, self.name, record, Reason.PAST_GRACE, detail))
        if self._explain:
            self._decide(step, record, Verdict.LATE, Reason.PAST_GRACE, cause)

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms),)
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))
