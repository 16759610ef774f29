"""Sample: keep one key in so many, with all of its records.

A hash of the key's bytes decides. It has nothing to do with the hash by which producers choose a
partition. So a key is kept in every partition, run and pipeline, or in none. Duplicates stay beside
their first record, a table's rows stay complete, and samples of two topics can be joined.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import repeat

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.policies import SamplePolicy
from headrace.contracts.record import Record
from headrace.services.operators.operator import Batch, Counts, Step

_HASH_BYTES = 8


class Sample:
    """The operator; it has no state."""

    def __init__(self, policy: SamplePolicy, *, explain: bool = False) -> None:
        """Keep one key in `every`."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._every = policy.every
        self._explain = explain

    def process(self, batch: Batch) -> Step:
        """Forward the records of keys that are kept."""
        records, olds = batch.records, batch.olds
        forwarded = Batch([], [], None if olds is None else [])
        step = Step(forwarded)
        self.counts.taken += len(records)
        before = repeat(None, len(records)) if olds is None else olds
        for record, cause, old in zip(records, batch.causes, before, strict=True):
            kept = self._keeps(record)
            if kept:
                forwarded.append(record, cause, old)
            if self._explain:
                step.decisions.append(self._decision(record, cause, kept=kept))
        self.counts.forwarded += len(forwarded.records)
        self.counts.drop(Reason.SAMPLED_OUT, len(records) - len(forwarded.records))
        return step

    def _keeps(self, record: Record) -> bool:
        named = record.value if record.key is None else record.key
        digest = blake2b(named or b"", digest_size=_HASH_BYTES).digest()
        return int.from_bytes(digest, "big") % self._every == 0

    def _decision(self, record: Record, cause: int, *, kept: bool) -> Decision:
        verdict, reason = (
            (Verdict.FORWARDED, Reason.KEPT) if kept else (Verdict.DROPPED, Reason.SAMPLED_OUT)
        )
        return Decision(self.name, record, verdict, reason, (("every", self._every),), cause)

    def save(self) -> None:
        """Do nothing: a sample has no state."""
