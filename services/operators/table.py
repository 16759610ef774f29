"""Table: the latest value by key; the operators behind it see the old value beside the new one.

Latest means latest by offset. A record without key is dropped: it is no row. A null value deletes
the row and is forwarded, even where the row was unknown. Rule A5.

State
    0x01 key    the value
"""

from __future__ import annotations

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.policies import TablePolicy
from headrace.services.operators.operator import Batch, Counts, Step, View

_SPACE = b"\x01"


class Table:
    """The operator over one partition."""

    def __init__(self, policy: TablePolicy, view: View, *, explain: bool = False) -> None:
        """Go on with the rows in the view."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._view = view
        self._space = view.prefix + _SPACE
        self._explain = explain

    def process(self, batch: Batch) -> Step:
        """Forward every update with the value that it replaces."""
        olds: list[bytes | None] = []
        forwarded = Batch([], [], olds)
        step = Step(forwarded)
        latest = self._recall(batch)
        changed: dict[bytes, bytes | None] = {}
        for record, cause in zip(batch.records, batch.causes, strict=True):
            key = record[0]
            if key is None:
                self.counts.drop(Reason.NULL_KEY)
            else:
                row_key = self._space + key
                olds.append(latest[row_key])
                latest[row_key] = changed[row_key] = record[1]
                forwarded.records.append(record)
                forwarded.causes.append(cause)
            if self._explain:
                verdict, reason = (
                    (Verdict.DROPPED, Reason.NULL_KEY)
                    if key is None
                    else (Verdict.FORWARDED, Reason.UPDATED)
                )
                step.decisions.append(Decision(self.name, record, verdict, reason, (), cause))
        self._view.put_many(changed)
        self.counts.taken += len(batch.records)
        self.counts.forwarded += len(forwarded.records)
        return step

    def _recall(self, batch: Batch) -> dict[bytes, bytes | None]:
        """Return the rows of all keys of the batch."""
        keys = {record[0] for record in batch.records}
        row_keys = [self._space + key for key in keys if key is not None]
        return dict(zip(row_keys, self._view.get_many(row_keys), strict=True))

    def save(self) -> None:
        """Do nothing: rows were put with their batch."""
