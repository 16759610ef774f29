"""Drives operators through a plan of batches, commits and crashes, and says what came of it.

A crash throws away the operators and all that was not committed: changes, and what left since.
A restart builds new ones over the store and reads again from the first record not committed.
That is what the runtime does in one transaction, without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain as chained
from typing import Protocol

from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain, build_operator
from headrace.services.operators.operator import Batch, Step
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Store
from tests.oracles.expected import Expected, Output
from tests.properties.strategies import Stop

PIPELINE = "properties"


class Subject(Protocol):
    """The operator under test, or a chain of operators."""

    def skip(self, records: Sequence[Record]) -> None:
        """Begin behind these records, which an earlier subject has decided."""

    def process(self, batch: Batch) -> Step:
        """Decide about every record of the batch."""

    def save(self) -> None:
        """Put into the views all that was not put yet."""

    def held(self) -> int:
        """How many records are held now."""

    def imbalance(self) -> int:
        """How many records were lost or invented."""


Build = Callable[[Overlay], Subject]


class OneOperator:
    """One operator as a subject."""

    def __init__(self, policy: AnyOperator, overlay: Overlay) -> None:
        """Build the operator over its part of the store."""
        self.operator = build_operator(policy, overlay.view(policy.store or policy.kind))
        self.process = self.operator.process
        self.save = self.operator.save

    def skip(self, records: Sequence[Record]) -> None:
        """Begin anywhere."""

    def held(self) -> int:
        """How many records are held now."""
        return self.operator.counts.held

    def imbalance(self) -> int:
        """How many records were lost or invented."""
        return self.operator.counts.balance()


class WholeChain:
    """A chain as a subject."""

    def __init__(
        self,
        policies: Sequence[AnyOperator],
        overlay: Overlay,
        *,
        carefully: bool = False,
        warily: bool = False,
    ) -> None:
        """Build every operator over its part of the store."""
        self.take(Chain(policies, overlay.view), carefully=carefully)
        if warily:
            self.process = self._process_warily

    def skip(self, records: Sequence[Record]) -> None:
        """Begin anywhere."""

    def take(self, chain: Chain, *, carefully: bool) -> None:
        """Be this chain."""
        self._chain = chain
        self.process = partial(chain.process, carefully=carefully)
        self.advance = partial(chain.advance, carefully=carefully)
        self.save = chain.save

    def _process_warily(self, batch: Batch) -> Step:
        self._chain.save()
        return self._chain.process(batch, warily=True)

    def held(self) -> int:
        """How many records are held now, by all operators."""
        return sum(operator.counts.held for operator in self._chain.operators)

    def imbalance(self) -> int:
        """How many records were lost or invented, by all operators."""
        return sum(map(abs, self._chain.imbalance().values()))


@dataclass(slots=True)
class Outcome:
    """The results so far; a cause is the number of a record in the input, from the first one."""

    outputs: list[Output] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    failure: int | None = None
    held: int = 0
    """How many records were held at the end."""
    taken: int = 0
    """How many records were read until then."""

    def take(self, step: Step, first: int) -> None:
        """Add a batch's step; its records began at `first`."""
        batch = step.forwarded
        olds = batch.olds if batch.olds is not None else [None] * len(batch.records)
        for record, cause, old in zip(batch.records, batch.causes, olds, strict=True):
            key, value, timestamp_ms, headers, *_ = record
            self.outputs.append(Output(first + cause, key, value, timestamp_ms, headers, old))
        self.late += [first + aside.cause for aside in step.late]
        self.dead += [first + aside.cause for aside in step.dead]
        if step.failure is not None:
            self.failure = first + step.failure.cause

    def copy(self) -> Outcome:
        """The same, untouched by what comes."""
        return Outcome(
            [*self.outputs], [*self.late], [*self.dead], self.failure, self.held, self.taken
        )


def run(
    build: Build,
    records: Sequence[Record],
    plan: Sequence[Stop] = (),
    *,
    store: Store | None = None,
    olds: Sequence[bytes | None] | None = None,
) -> Outcome:
    """Lead the records through, as planned; what the plan leaves over is one batch."""
    return Drive(build, records, MemoryStore() if store is None else store, olds).run(plan)


class Drive:
    """One run, with the laws of every operator checked after every batch."""

    def __init__(
        self,
        build: Build,
        records: Sequence[Record],
        store: Store,
        olds: Sequence[bytes | None] | None = None,
        taken: Outcome | None = None,
    ) -> None:
        """Open the subject, behind what another has `taken` over this store; it reads nothing."""
        self._build = build
        self._records = list(records)
        self._olds = None if olds is None else list(olds)
        self._store = store
        self._committed = Outcome() if taken is None else taken.copy()
        self._start()

    def _start(self) -> None:
        self._overlay = Overlay(self._store, PIPELINE)
        self.subject = self._build(self._overlay)
        self.outcome = self._committed.copy()
        self.subject.skip(self._records[: self.outcome.taken])
        held = self.subject.held()
        assert held == self.outcome.held, f"{self.outcome.held} held before, {held} after a restart"

    def run(self, plan: Sequence[Stop]) -> Outcome:
        """Follow the plan to the end of the input, or to a failure."""
        rest = Stop(len(self._records), "commit")
        for stop in chained(plan, [rest]):
            self.process(stop.size)
            if stop.then == "crash":
                self._start()
            elif self.outcome.failure is not None:
                break
            elif stop.then == "commit":
                self.commit()
        return self.outcome

    def process(self, size: int) -> None:
        """Lead the next records through, as one batch."""
        first = self.outcome.taken
        end = min(len(self._records), first + size)
        batch = Batch.of(self._records[first:end])
        if self._olds is not None:
            batch.olds = self._olds[first:end]
        step = self.subject.process(batch)
        self._check_laws(step, end - first)
        self.outcome.take(step, first)
        self.outcome.held, self.outcome.taken = self.subject.held(), end

    def advance(self, time_ms: int) -> list[Output]:
        """The source is as far as that by the clock; what leaves because of it."""
        assert isinstance(self.subject, WholeChain)
        before = len(self.outcome.outputs)
        step = self.subject.advance(time_ms)
        assert self.subject.imbalance() == 0, "records were lost or invented"
        if step is not None:
            self.outcome.take(step, self.outcome.taken)
        self.outcome.held = self.subject.held()
        return self.outcome.outputs[before:]

    def _check_laws(self, step: Step, size: int) -> None:
        causes = step.forwarded.causes
        assert causes == sorted(causes), "causes go backwards"
        assert all(0 <= cause < size for cause in causes), "a cause outside of the batch"
        assert len(step.forwarded.records) == len(causes), "an output without a cause"
        if step.failure is None:
            assert self.subject.imbalance() == 0, "records were lost or invented"

    def commit(self) -> None:
        """Make what was read and what left last."""
        self.subject.save()
        self._overlay.commit({})
        self._committed = self.outcome.copy()

    def restart(self) -> None:
        """Commit, and go on with new operators over what was committed."""
        self.commit()
        self._start()


def operator_of(policy: AnyOperator) -> Build:
    """One operator over its own part of the store."""
    return lambda overlay: OneOperator(policy, overlay)


def chain_of(
    policies: Sequence[AnyOperator], *, carefully: bool = False, warily: bool = False
) -> Build:
    """A chain of operators, each over its own part of the store."""
    return lambda overlay: WholeChain(policies, overlay, carefully=carefully, warily=warily)


def assert_agree(outcome: Outcome, expected: Expected) -> None:
    """The operator did what the oracle says."""
    assert outcome.outputs == expected.outputs
    assert outcome.dead == expected.dead
    assert outcome.failure == expected.failure


def assert_holds(outcome: Outcome, expected: Expected) -> None:
    """As many records are held as the oracle says."""
    if expected.failure is None:
        assert outcome.held == (expected.held[-1][0] if expected.held else 0)
