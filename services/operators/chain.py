"""The chain: a pipeline's operators over one partition, each fed with what left the one before it.

An operator that cannot go on ends the batch: what left before goes through the operators behind it,
the rest of the batch was never decided, and the chain must be thrown away with its views' changes.
So must one that has raised; the same batch is then processed carefully (see `careful`) by another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from contracts.decision import Decision, Verdict
from contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    ReorderPolicy,
    SuppressPolicy,
    TablePolicy,
)
from contracts.record import NO_TIME_MS
from contracts.selectors import predicate, select
from services.operators.aggregate import Aggregate
from services.operators.careful import Stage
from services.operators.deduplicate import Deduplicate
from services.operators.distinct import Distinct
from services.operators.filter import Filter
from services.operators.functions import function_of
from services.operators.held_windows import shares
from services.operators.operator import Batch, Operator, Step, View
from services.operators.reorder import Reorder
from services.operators.suppress import Suppress
from services.operators.table import Table


def build_operator(
    policy: AnyOperator, view: View, *, held_by: Suppress | None = None, explain: bool = False
) -> Operator:
    """The operator that a policy describes, going on where its view was saved.

    `held_by` is what holds its results, where these stand in the operator behind it alone.
    """
    match policy:
        case ReorderPolicy():
            return Reorder(policy, view, explain=explain)
        case DeduplicatePolicy():
            return Deduplicate(policy, view, select(policy.id or "key"), explain=explain)
        case DistinctPolicy():
            return Distinct(policy, view, explain=explain)
        case TablePolicy():
            return Table(policy, view, explain=explain)
        case FilterPolicy():
            return Filter(policy, predicate(policy.where), explain=explain)
        case AggregatePolicy():
            function = function_of(policy)
            return Aggregate(policy, view, function, held_by=held_by, explain=explain)
        case SuppressPolicy():
            return Suppress(policy, view, explain=explain)


@dataclass(slots=True)
class Lateness:
    """How late records came, against the latest time before each (rule A6)."""

    time_ms: int = NO_TIME_MS
    records: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    def take(self, timestamps_ms: list[int]) -> None:
        """A batch of records; most are not late, and then there is nothing to add up."""
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


class Chain:
    """Operators in their order over one partition."""

    def __init__(
        self,
        policies: Sequence[AnyOperator],
        view_of: Callable[[str], View],
        *,
        explain: bool = False,
        row_bytes_max: int = sys.maxsize,
    ) -> None:
        """Build every operator over the view of its store; no row of it may be larger than that."""
        self._row_bytes_max = row_bytes_max
        self._policies = policies
        self._views = [view_of(policy.store or policy.name or policy.kind) for policy in policies]
        self.operators = _build(policies, self._views, explain=explain)
        self._explain = explain
        self.lateness = Lateness()

    def process(self, batch: Batch, *, carefully: bool = False) -> Step:
        """Take a batch from the source through all operators.

        Carefully is record by record: what an operator fails on is dead, and the rest goes on.
        """
        self.lateness.take([record[2] for record in batch.records])
        return self.process_from(0, batch, carefully=carefully)

    def process_from(self, first: int, batch: Batch, *, carefully: bool = False) -> Step:
        """Take a batch through the operators from `first` on."""
        whole = Step(batch)
        if carefully:
            for span in self._spans(first):
                whole.go_on(self._process_each(span, whole.forwarded))
        else:
            for operator in self.operators[first:]:
                whole.go_on(operator.process(whole.forwarded))
        if self._explain:
            whole.decisions += [
                Decision(dead.operator, dead.record, Verdict.DEAD, dead.reason, (), dead.cause)
                for dead in whole.dead
            ]
        return whole

    def _spans(self, first: int) -> Iterator[slice]:
        """Where operators stand, those that look into one another's state together."""
        for place in range(first, len(self.operators)):
            operator = self.operators[place]
            if not (isinstance(operator, Aggregate) and operator.looks_behind):
                yield slice(first, place + 1)
                first = place + 1

    def _process_each(self, span: slice, batch: Batch) -> Step:
        policies, views = self._policies[span], self._views[span]
        rebuild = partial(_build, policies, views, explain=self._explain)
        stage = Stage(self.operators[span], views, rebuild, self._row_bytes_max)
        step = stage.process(batch)
        self.operators[span] = stage.operators
        return step

    def release_idle(self, *, carefully: bool = False) -> Step | None:
        """Let go of what waits for records that a silent source will not send; None if nothing.

        Only a reorder with `idle` ever lets go without a record. The caller has looked at the
        clock, and at whether there is anything left to read.
        """
        whole: Step | None = None
        for index, operator in enumerate(self.operators):
            if isinstance(operator, Reorder) and operator.releases_when_idle:
                released = operator.release_idle()
                rest = self.process_from(index + 1, released.forwarded, carefully=carefully)
                rest.decisions = [*released.decisions, *rest.decisions]
                whole = rest if whole is None else _joined(whole, rest)
                if whole.failure is not None:
                    return whole
        return whole

    def save(self) -> None:
        """Put all that was not put yet; called before every commit."""
        for operator in self.operators:
            operator.save()

    def imbalance(self) -> dict[str, int]:
        """Operators at which records were lost or invented; empty, or there is a bug."""
        return {
            operator.name: balance
            for operator in self.operators
            if (balance := operator.counts.balance()) != 0
        }


def _build(
    policies: Sequence[AnyOperator], views: Sequence[View], *, explain: bool
) -> list[Operator]:
    """The last first, since an operator may have its results in the one behind it."""
    built: list[Operator] = []
    behind: AnyOperator | None = None
    for policy, view in zip(reversed(policies), reversed(views), strict=True):
        last = built[-1] if built else None
        held_by = last if isinstance(last, Suppress) and shares(policy, view, behind) else None
        built.append(build_operator(policy, view, held_by=held_by, explain=explain))
        behind = policy
    return built[::-1]


def _joined(one: Step, other: Step) -> Step:
    forwarded = Batch(
        one.forwarded.records + other.forwarded.records,
        one.forwarded.causes + other.forwarded.causes,
    )
    return Step(
        forwarded,
        one.late + other.late,
        one.dead + other.dead,
        one.decisions + other.decisions,
        other.failure,
    )
