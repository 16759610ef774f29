"""A stream of nonsense through a pipeline as a sidecar leads it, without Kafka; and what is judged.

No exception leaves. No record is lost or invented. A dead letter has its record's bytes. And what
one record meets does not depend on which records came with it: cut otherwise, the same stream gives
the same outputs, and leaves the same rows.
"""

from __future__ import annotations

import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from headrace.contracts.dead_letter import NAMES_HEADER, read_dead
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Headers, Record
from headrace.services.emit.asides import dead_records
from headrace.services.intake.timestamps import Timestamps
from headrace.services.operators.careful import is_of_a_record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Aside, Batch, Step
from headrace.services.state.changelog import records_of
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Store
from tests.nonsense.records import NOW_MS, shown


class Verdict(NamedTuple):
    """One thing that left, and what caused it."""

    cause: int
    what: str
    record: Record
    more: bytes | str | None = None
    """The value that it replaces, or why it is dead."""


@dataclass
class Outcome:
    """The results of a stream."""

    verdicts: list[Verdict] = field(default_factory=list)
    dead: Counter[str] = field(default_factory=Counter)
    """By operator and reason."""
    taken: int = 0
    held: int = 0
    stopped_at: int | None = None
    redone: int = 0
    """Batches that were done again, record by record."""
    rows: bytes = b""
    complaints: list[str] = field(default_factory=list)


class Run:
    """One life of a pipeline over a store."""

    def __init__(self, spec: PipelineSpec, store: Store) -> None:
        """Begin with what the store has."""
        self._spec = spec
        self._store = store
        self._overlay = Overlay(store, spec.pipeline)
        self._build()
        self.outcome = Outcome()

    def _build(self) -> None:
        self._timestamps = Timestamps(self._spec.source)
        self._chain = Chain(self._spec.operators, self._overlay.view)

    def restart(self) -> None:
        """Go on as another process would, from what was committed."""
        self._overlay = Overlay(self._store, self._spec.pipeline)
        self._build()

    def take(self, records: list[Record]) -> None:
        """One batch, committed; done again record by record where it fails."""
        try:
            self._try(records, carefully=False)
        except Exception as problem:
            if not is_of_a_record(problem):
                raise
            self.outcome.redone += 1
            self._overlay.discard()
            self._build()
            self._try(records, carefully=True)

    def _try(self, records: list[Record], *, carefully: bool) -> None:
        batch, dead = self._timestamps.take(list(records), NOW_MS)
        step = self._chain.process(batch, carefully=carefully)
        self._chain.save()
        rows = list(records_of(self._overlay))
        letters = [*dead_records([*dead, *step.dead], records)]
        if step.failure is None:
            self._check_balance(records, batch, dead)
        self._check_letters(records, [*dead, *step.dead], letters)
        assert all(isinstance(part, bytes) for row in rows for part in row if part is not None)
        self._note(step, dead)
        if step.failure is not None:
            self.outcome.stopped_at = step.failure.cause + self.outcome.taken
            return
        self._overlay.commit({})
        self.outcome.taken += len(records)
        self.outcome.held = sum(operator.counts.held for operator in self._chain.operators)

    def _check_balance(self, records: list[Record], batch: Batch, dead: list[Aside]) -> None:
        lost = self._chain.imbalance()
        if lost:
            self._complain(f"records were lost or invented: {lost}", records)
        if len(batch.records) + len(dead) != len(records):
            self._complain("a record was neither taken nor dead at the door", records)

    def _check_letters(
        self, records: list[Record], dead: list[Aside], letters: list[Record]
    ) -> None:
        for aside, letter in zip(dead, letters, strict=True):
            read = read_dead(letter)
            said = (
                None
                if read is None
                else read.record._replace(headers=own_headers(read.record.headers))
            )
            if said is None or said[:4] != aside.record[:4] or said.topic != aside.record.topic:
                self._complain(f"a letter is not its record: {aside[:2]}", [aside.record])
            one_of_ours = 0 <= aside.cause < len(records)
            if aside.operator == "intake" and one_of_ours and aside.record != records[aside.cause]:
                self._complain("a dead record is not what it was", [aside.record])

    def _note(self, step: Step, dead: list[Aside]) -> None:
        first = self.outcome.taken
        forwarded = step.forwarded
        olds = forwarded.olds or [None] * len(forwarded.records)
        verdicts = self.outcome.verdicts
        for record, cause, old in zip(forwarded.records, forwarded.causes, olds, strict=True):
            verdicts.append(Verdict(first + cause, "forwarded", record, old))
        for aside in step.late:
            verdicts.append(Verdict(first + aside.cause, "late", aside.record))
        for aside in [*dead, *step.dead]:
            what = f"{aside.operator} {aside.reason.value}"
            self.outcome.dead[what] += 1
            verdicts.append(
                Verdict(first + aside.cause, f"dead {what}", aside.record, aside.detail)
            )

    def _complain(self, what: str, records: list[Record]) -> None:
        self.outcome.complaints.append(f"{what}\n    {[shown(one) for one in records[:2]]}")

    def close(self) -> Outcome:
        """The rows in the store belong to it."""
        digest = blake2b(digest_size=16)
        for key, row in self._store.range(b"", b"\xff"):
            digest.update(b"%d %d " % (len(key), len(row)))
            digest.update(key)
            digest.update(row)
        self.outcome.rows = digest.digest()
        return self.outcome


def run(
    spec: PipelineSpec, records: Sequence[Record], cut: int, store: Store | None = None
) -> Outcome:
    """Lead a stream through in batches of so many."""
    one = Run(spec, MemoryStore() if store is None else store)
    for batch in _batches(records, cut):
        try:
            if one.outcome.taken == len(records) // 2:
                one.restart()
            one.take(batch)
        except BaseException:  # noqa: BLE001  # whatever leaves is what is looked for
            shorter = traceback.format_exc()[-1_500:].encode(errors="backslashreplace").decode()
            one.outcome.complaints.append(f"at {one.outcome.taken}, {cut} at a time: {shorter}")
            break
        if one.outcome.stopped_at is not None:
            break
    return one.close()


def differences(one: Outcome, other: Outcome) -> Iterator[str]:
    """In what two runs over the same stream differ."""
    if one.complaints or other.complaints:
        return
    if one.stopped_at != other.stopped_at:
        yield f"one stopped at {one.stopped_at}, the other at {other.stopped_at}"
        return
    mine, others = _by_cause(one), _by_cause(other)
    causes = sorted(mine.keys() | others.keys())
    wrong = [cause for cause in causes if mine[cause] != others[cause]]
    for cause in wrong[:3]:
        here, there = ([one.what for one in of[cause]] for of in (mine, others))
        yield f"the record at {cause} met {here} and {there}"
    if len(wrong) > 3:
        yield f"and {len(wrong) - 3} others"
    if one.stopped_at is None and one.held != other.held:
        yield f"held are {one.held} and {other.held}"


def _by_cause(outcome: Outcome) -> dict[int, Counter[Verdict]]:
    found: dict[int, Counter[Verdict]] = defaultdict(Counter)
    for verdict in outcome.verdicts:
        if outcome.stopped_at is None or verdict.cause < outcome.stopped_at:
            found[verdict.cause][verdict] += 1
    return found


def own_headers(headers: Headers) -> Headers:
    """A record's own headers in its letter, under the names that they had."""
    if not headers or headers[-1][0] != NAMES_HEADER:
        return headers
    names = [bytes.fromhex(name.decode()) for name in (headers[-1][1] or b"").split(b" ")]
    return tuple(
        (name.decode(errors="surrogateescape"), content)
        for name, (_, content) in zip(names, headers[:-1], strict=True)
    )


def _batches(records: Sequence[Record], cut: int) -> Iterator[list[Record]]:
    """The first half and the second half, each cut from its beginning."""
    half = len(records) // 2
    for remaining in (iter(records[:half]), iter(records[half:])):
        while batch := list(islice(remaining, cut)):
            yield batch
