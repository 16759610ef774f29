"""Filter: keep records for which a predicate holds.

Behind a table or an aggregate, a row that no longer holds becomes a tombstone, and a row that never
held stays away: the operators behind must see their table change, not its history. Rule F5 for
plain tables.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.policies import FilterPolicy
from headrace.contracts.record import Record
from headrace.services.operators.operator import Batch, Counts, Step
from headrace.services.operators.readable import dead_aside, read_batch, set_aside_dead

Predicate = Callable[[Record], bool]


class Filter:
    """The operator; it has no state."""

    def __init__(
        self, policy: FilterPolicy, predicate: Predicate, *, explain: bool = False
    ) -> None:
        """Keep the records for which `predicate` holds."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._predicate = predicate
        self._explain = explain

    def process(self, batch: Batch) -> Step:
        """Forward records for which the predicate holds."""
        if batch.olds is None:
            step = self._process_events(batch)
        else:
            step = self._process_table(batch, batch.olds)
        self.counts.forwarded += len(step.forwarded.records)
        return step

    def _process_events(self, batch: Batch) -> Step:
        forwarded = Batch([], [])
        step = Step(forwarded)
        records, causes, holds = read_batch(batch, self._predicate, self.name, step, self.counts)
        for record, cause, hold in zip(records, causes, holds, strict=True):
            if hold:
                forwarded.records.append(record)
                forwarded.causes.append(cause)
            self._settle(step, record, cause, kept=hold)
        return step

    def _process_table(self, batch: Batch, olds: list[bytes | None]) -> Step:
        forwarded = Batch([], [], [])
        step = Step(forwarded)
        self.counts.taken += len(batch.records)
        for record, cause, old_value in zip(batch.records, batch.causes, olds, strict=True):
            try:
                new = record if self._holds(record) else record._replace(value=None)
            except RecordUndecodable as problem:
                set_aside_dead(step, self.counts, dead_aside(cause, self.name, record, problem))
                continue
            old = old_value if self._held(record._replace(value=old_value)) else None
            kept = new.value is not None or old is not None
            if kept:
                forwarded.append(new, cause, old)
            self._settle(step, record, cause, kept=kept)
        return step

    def _holds(self, record: Record) -> bool:
        """Return whether a table's row exists and the predicate holds; a deleted row is gone."""
        return record.value is not None and self._predicate(record)

    def _held(self, old_record: Record) -> bool:
        """Return whether readers may have a row from before.

        An unreadable update is dead, and changes nothing for readers: they may still have the row
        before it. A tombstone too many does no harm.
        """
        try:
            return self._holds(old_record)
        except RecordUndecodable:
            return True

    def _settle(self, step: Step, record: Record, cause: int, *, kept: bool) -> None:
        if not kept:
            self.counts.drop(Reason.FILTERED)
        if self._explain:
            verdict, reason = (
                (Verdict.FORWARDED, Reason.KEPT) if kept else (Verdict.DROPPED, Reason.FILTERED)
            )
            step.decisions.append(Decision(self.name, record, verdict, reason, (), cause))

    def save(self) -> None:
        """Do nothing: a filter has no state."""
