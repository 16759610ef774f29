"""The chain: a pipeline's operators over one partition, each fed by the one before it.

An operator that cannot go on ends the batch. The records that it forwarded before go through the
operators behind it; the rest of the batch is not decided, and the chain must be thrown away with
its views' changes. A chain that has raised must be thrown away, too. Another chain then processes
the same batch carefully (see `careful`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from headrace.contracts.decision import Decision, Verdict
from headrace.contracts.hops import makes_order, makes_values
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    MergePolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    TablePolicy,
)
from headrace.contracts.record import NO_TIME_MS
from headrace.contracts.selectors import predicate, select
from headrace.contracts.serde.json import ReadField, decode_json_field
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.careful import Stage, before, check_rows, go_back, is_of_a_record
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.deduplicate_across import DeduplicateAcross
from headrace.services.operators.distinct import Distinct
from headrace.services.operators.filter import Filter
from headrace.services.operators.functions import function_of
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.lateness import Lateness
from headrace.services.operators.merge import Merge
from headrace.services.operators.operator import NO_CAUSE, Batch, Operator, Step, View
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.sample import Sample
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.table import Table
from headrace.services.operators.timed import Timed
from headrace.services.operators.waits import held_back_ms
from headrace.services.operators.windows.held_windows import shares


def build_operator(
    policy: AnyOperator,
    view: View,
    *,
    held_by: Suppress | None = None,
    lanes: Lanes | None = None,
    read: ReadField = decode_json_field,
    explain: bool = False,
) -> Operator:
    """Build the operator of a policy; it goes on where its view was saved.

    `held_by` is the suppress behind it, if that alone stores its results. `lanes` are the source
    partitions, if their records come to it in no order. `read` reads the records' values.
    """
    across = None if lanes is None else _across(policy, view, lanes, read, explain=explain)
    if across is not None:
        return across
    match policy:
        case ReorderPolicy():
            return Reorder(policy, view, explain=explain)
        case DeduplicatePolicy():
            return Deduplicate(policy, view, select(policy.id or "key", read), explain=explain)
        case DistinctPolicy():
            return Distinct(policy, view, explain=explain)
        case TablePolicy():
            return Table(policy, view, explain=explain)
        case FilterPolicy() | SamplePolicy():
            return _without_state(policy, read, explain=explain)
        case AggregatePolicy():
            function = function_of(policy, read)
            return Aggregate(policy, view, function, held_by=held_by, explain=explain)
        case SuppressPolicy():
            return Suppress(policy, view, explain=explain)
        case MergePolicy():
            message = "a merge stands behind a repartition, where there are lanes"
            raise AssertionError(message)


def _without_state(
    policy: FilterPolicy | SamplePolicy, read: ReadField, *, explain: bool
) -> Operator:
    if isinstance(policy, SamplePolicy):
        return Sample(policy, explain=explain)
    return Filter(policy, predicate(policy.where, read), explain=explain)


def _across(
    policy: AnyOperator, view: View, lanes: Lanes, read: ReadField, *, explain: bool
) -> Operator | None:
    """Return the operator for records in no order, None where the order makes no difference."""
    match policy:
        case MergePolicy():
            return Merge(policy, view, lanes, explain=explain)
        case ReorderPolicy() if makes_order(policy):
            return Merge(policy, view, lanes, explain=explain)
        case DeduplicatePolicy():
            return DeduplicateAcross(
                policy, view, select(policy.id or "key", read), lanes, explain=explain
            )
        case _:
            return None


class Chain:
    """Operators in their order over one partition."""

    def __init__(
        self,
        policies: Sequence[AnyOperator],
        view_of: Callable[[str], View],
        *,
        lanes: Lanes | None = None,
        read: ReadField = decode_json_field,
        explain: bool = False,
        row_bytes_max: int = sys.maxsize,
    ) -> None:
        """Build every operator over the view of its store, with rows of at most `row_bytes_max`.

        Behind a repartition `lanes` are the source partitions. `read` reads incoming values.
        """
        self._row_bytes_max = row_bytes_max
        self._policies = policies
        self._views = [view_of(policy.store or policy.name or policy.kind) for policy in policies]
        self.lanes = lanes
        self._lanes_of = list(_until_ordered(policies, lanes))
        *self._reads_of, self.read_behind = _until_aggregated(policies, read)
        self._are_updates = list(_updates(policies))
        self.operators = self._built(slice(None), explain=explain)
        self._explain = explain
        self.lateness = Lateness()
        self._last = Batch([], []), NO_TIME_MS
        self._clock_from_ms = NO_TIME_MS

    def process(self, batch: Batch, *, carefully: bool = False, warily: bool = False) -> Step:
        """Take a batch from the source through all operators.

        Carefully means record by record: a record on which an operator fails is dead, and the rest
        goes on. Warily means that a batch is undone if an operator fails, also when it saves what
        the batch has changed, and is taken carefully.
        """
        if warily:
            return self._process_warily(batch)
        self._last = batch, self.lateness.time_ms
        if self.lanes is None:
            self.lateness.take([record[2] for record in batch.records])
        else:
            batch = self.lanes.take(batch)
            self.lateness.take_across(batch, self.lanes.latest_ms)
        return self.process_from(0, batch, carefully=carefully)

    def _process_warily(self, batch: Batch) -> Step:
        """Take a batch right behind `save`."""
        state, lateness = before(self.operators, self._views), replace(self.lateness)
        heard = None if self.lanes is None else self.lanes.heard()
        try:
            step = self.process(batch)
            self.save()
            check_rows(state, self._views, self._row_bytes_max)
        except Exception as problem:  # a function of a user raises what it likes
            if not is_of_a_record(problem):
                raise
        else:
            return step
        if self.lanes is not None and heard is not None:
            self.lanes.go_back(heard)
        rebuild = partial(self._built, slice(None), explain=self._explain)
        self.operators[:] = go_back(state, self._views, rebuild)
        self.lateness = lateness
        return self.process(batch, carefully=True)

    def times_ms(self, causes: list[int], *, before: bool = False) -> list[int]:
        """Return how far the source was with these records of the last batch, or before them.

        Without a record it is where it is, and was where it was before the clock moved it.
        """
        batch, time_ms = self._last
        if self.lanes is not None:
            bound = self.lanes.bound_before if before else self.lanes.bound_at
            return [self.time_ms if one == NO_CAUSE else bound(one).time_ms for one in causes]
        times_ms = list(accumulate((record[2] for record in batch.records), max, initial=time_ms))
        del times_ms[-1 if before else 0]
        if causes == batch.causes:
            return times_ms
        without_ms = self._clock_from_ms if before else self.time_ms
        time_at = dict(zip(batch.causes, times_ms, strict=True)) | {NO_CAUSE: without_ms}
        return [time_at[cause] for cause in causes]

    @property
    def time_ms(self) -> int:
        """How far the source is: no record on time is expected before."""
        return self.lateness.time_ms if self.lanes is None else self.lanes.bound.time_ms

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
        """Yield the places of operators, those that look into one another's state together."""
        for place in range(first, len(self.operators)):
            operator = self.operators[place]
            if not (isinstance(operator, Aggregate) and operator.looks_behind):
                yield slice(first, place + 1)
                first = place + 1

    def _built(self, span: slice, *, explain: bool) -> list[Operator]:
        return _build(
            self._policies[span],
            self._views[span],
            self._lanes_of[span],
            self._reads_of[span],
            explain=explain,
        )

    def _process_each(self, span: slice, batch: Batch) -> Step:
        rebuild = partial(self._built, span, explain=self._explain)
        stage = Stage(self.operators[span], self._views[span], rebuild, self._row_bytes_max)
        step = stage.process(batch)
        self.operators[span] = stage.operators
        return step

    def lets_go(self, *, by_clock: bool) -> bool:
        """Return whether held records will leave in a silence: by a clock, or by `idle`."""
        if by_clock:
            return any(operator.counts.held for operator in self.operators)
        reorders = (operator for operator in self.operators if isinstance(operator, Reorder))
        return any(operator.releases_when_idle for operator in reorders)

    def release_idle(self, *, carefully: bool = False) -> Step | None:
        """Release records that wait for others from a silent source; None if none wait.

        Only a reorder with `idle` ever releases records without a new one. The caller has checked
        the clock, and that there is nothing left to read.
        """
        self._clock_from_ms = self.time_ms
        whole: Step | None = None
        for index, operator in enumerate(self.operators):
            if isinstance(operator, Reorder) and operator.releases_when_idle:
                released = operator.release_idle()
                whole = self._joined_by(whole, index, released, carefully=carefully)
                if whole.failure is not None:
                    return whole
        return whole

    def advance(self, time_ms: int, *, carefully: bool = False) -> Step | None:
        """Move the source's time though no record says so; None if nothing is decided by it.

        Stream time moves as if a record of that time had come, operator by operator.
        """
        self._clock_from_ms = self.time_ms
        if self.lanes is None:
            self.lateness.time_ms = max(self.lateness.time_ms, time_ms)
        whole: Step | None = None
        for index, reached_ms in enumerate(self._times_before(time_ms)):
            operator = self.operators[index]
            if isinstance(operator, Reorder | Suppress | Timed):
                released = operator.advance(reached_ms)
                if not self._are_updates[index]:
                    released.forwarded.olds = None
                if released.forwarded.records or released.decisions:
                    whole = self._joined_by(whole, index, released, carefully=carefully)
                    if whole.failure is not None:
                        return whole
        return whole

    def is_due(self, time_ms: int) -> bool:
        """Return whether a record would leave if the source were as far as that."""
        return any(
            isinstance(operator, Reorder | Suppress)
            and not isinstance(operator, Merge)
            and operator.held_from_ms is not None
            and operator.held_from_ms <= reached_ms - operator.wait_ms
            for operator, reached_ms in zip(
                self.operators, self._times_before(time_ms), strict=True
            )
        )

    def _times_before(self, time_ms: int) -> Iterator[int]:
        """Yield the time that reaches each operator if the source is as far as `time_ms`."""
        for policy in self._policies:
            yield time_ms
            time_ms -= held_back_ms(policy)

    def _joined_by(
        self, whole: Step | None, index: int, released: Step, *, carefully: bool
    ) -> Step:
        """Take the records that one operator released through the operators behind it."""
        rest = self.process_from(index + 1, released.forwarded, carefully=carefully)
        rest.decisions = [*released.decisions, *rest.decisions]
        return rest if whole is None else _joined(whole, rest)

    def save(self) -> None:
        """Put all state that was not put yet; called before every commit."""
        for operator in self.operators:
            operator.save()
        if self.lanes is not None:
            self.lanes.save()

    def imbalance(self) -> dict[str, int]:
        """Return operators at which records were lost or invented, which would be a bug."""
        return {
            operator.name: balance
            for operator in self.operators
            if (balance := operator.counts.balance()) != 0
        }


def _updates(policies: Sequence[AnyOperator]) -> Iterator[bool]:
    """Yield for each operator whether it emits updates of a table, and not events."""
    are_updates = False
    for policy in policies:
        if isinstance(policy, TablePolicy | AggregatePolicy):
            are_updates = True
        elif isinstance(policy, SuppressPolicy):
            are_updates = are_updates and policy.until == "time-limit"
        elif not isinstance(policy, FilterPolicy | SamplePolicy):
            are_updates = False
        yield are_updates


def _until_ordered(policies: Sequence[AnyOperator], lanes: Lanes | None) -> Iterator[Lanes | None]:
    """Yield the lanes for each operator whose records come in no order, and else None."""
    for policy in policies:
        yield lanes
        if makes_order(policy):
            lanes = None


def _until_aggregated(policies: Sequence[AnyOperator], read: ReadField) -> Iterator[ReadField]:
    """Yield how to read the values that come to each operator, and those that leave the last one.

    An aggregate makes JSON, or the eight bytes of a count, whatever its records were; unless it
    keeps a record's whole value.
    """
    for policy in policies:
        yield read
        if makes_values(policy):
            read = decode_json_field
    yield read


def _build(
    policies: Sequence[AnyOperator],
    views: Sequence[View],
    lanes_of: Sequence[Lanes | None],
    reads_of: Sequence[ReadField],
    *,
    explain: bool,
) -> list[Operator]:
    """Build the last operator first, since an operator may store results in the one behind it."""
    built: list[Operator] = []
    behind: AnyOperator | None = None
    of_each = (policies[::-1], views[::-1], lanes_of[::-1], reads_of[::-1])
    for policy, view, lanes, read in zip(*of_each, strict=True):
        last = built[-1] if built else None
        held_by = last if isinstance(last, Suppress) and shares(policy, view, behind) else None
        one = build_operator(policy, view, held_by=held_by, lanes=lanes, read=read, explain=explain)
        built.append(one)
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
