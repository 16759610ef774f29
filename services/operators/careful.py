"""Process a batch record by record, after it failed as a whole.

A stage gets one record at a time, and after each puts all of its state into its views. If it fails
on a record, the record is dead, with the exception in its letter. The stage goes back to its state
before that record, and the rest of the batch goes on. So a record's fate never depends on which
records came with it.

A stage is one operator, or two where the first stores its results in the second. An error that is
no record's fault (a disk, a damaged row) is raised, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy

from headrace.contracts.errors import HeadraceError, RecordTooLarge, RecordUndecodable
from headrace.services.operators.operator import (
    Batch,
    Changes,
    Counts,
    Operator,
    Origins,
    Step,
    View,
)
from headrace.services.operators.readable import dead_aside, set_aside_dead

Before = list[tuple[Changes, Counts]]


class Stage:
    """Operators that look into one another's state, and how to build them again over it."""

    def __init__(
        self,
        operators: Sequence[Operator],
        views: Sequence[View],
        rebuild: Callable[[], list[Operator]],
        row_bytes_max: int,
    ) -> None:
        """Keep the operators' changes so far; refuse rows that are larger than `row_bytes_max`."""
        self._row_bytes_max = row_bytes_max
        self.operators = list(operators)
        self._views = views
        self._rebuild = rebuild
        self._save()

    def process(self, batch: Batch) -> Step:
        """Decide about every record of a batch by itself."""
        whole = Step(Batch([], [], origins=None if batch.origins is None else Origins()))
        for one in _ones(batch):
            earlier = before(self.operators, self._views)
            try:
                step = self._take(one)
                self._check_rows(earlier)
            except Exception as problem:
                if not is_of_a_record(problem) or not one.records:
                    raise
                step = self._give_up(one, earlier, problem)
            _add(whole, step)
            if step.failure is not None:
                break
        return whole

    def _take(self, one: Batch) -> Step:
        step = Step(one)
        for operator in self.operators:
            step.go_on(operator.process(step.forwarded))
        self._save()
        return step

    def _check_rows(self, state: Before) -> None:
        """Refuse a record for which a row has become larger than the changelog accepts."""
        for view, (earlier, _) in zip(self._views, state, strict=True):
            for key, row in view.changes().rows.items():
                size_bytes = len(key) + len(row or b"")
                if size_bytes > self._row_bytes_max and earlier.rows.get(key) is not row:
                    message = (
                        f"what is remembered with it has {size_bytes} bytes, and the changelog"
                        f" takes {self._row_bytes_max}"
                    )
                    raise RecordTooLarge(message)

    def _save(self) -> None:
        for operator in self.operators:
            operator.save()

    def _give_up(self, one: Batch, state: Before, problem: Exception) -> Step:
        """Go back to the state before a record, and count the record as dead."""
        self.operators = go_back(state, self._views, self._rebuild)
        first = self.operators[0]
        first.counts.taken += 1
        step = Step(Batch([], []))
        aside = dead_aside(one.causes[0], first.name, one.records[0], problem)
        set_aside_dead(step, first.counts, aside)
        return step


def before(operators: Sequence[Operator], views: Sequence[View]) -> Before:
    """Return the state of operators that have saved it, to go back to."""
    return [
        (view.changes(), _copy_of(operator.counts))
        for view, operator in zip(views, operators, strict=True)
    ]


def go_back(
    state: Before, views: Sequence[View], rebuild: Callable[[], list[Operator]]
) -> list[Operator]:
    """Undo what operators did since then; return new ones in their place."""
    for view, (changes, _) in zip(views, state, strict=True):
        view.go_back(changes)
    operators = rebuild()
    for operator, (_, counts) in zip(operators, state, strict=True):
        operator.counts = counts
    return operators


def is_of_a_record(problem: Exception) -> bool:
    """Return whether a record may be to blame for an error; a disk or memory never is."""
    if isinstance(problem, HeadraceError):
        return isinstance(problem, RecordUndecodable)
    return not isinstance(problem, (OSError, MemoryError))


def _ones(batch: Batch) -> Iterator[Batch]:
    for place, (record, cause) in enumerate(zip(batch.records, batch.causes, strict=True)):
        olds = None if batch.olds is None else [batch.olds[place]]
        origins = None
        if batch.origins is not None:
            origins = Origins([batch.origins.lanes[place]], [batch.origins.times_ms[place]])
        yield Batch([record], [cause], olds, origins, is_part=True)
    if batch.origins is not None:
        # The times of source partitions behind the last record may release records as well.
        yield Batch([], [], origins=Origins())


def _add(whole: Step, step: Step) -> None:
    """Add the step of one more record to that of the batch."""
    more = step.forwarded
    if more.records:
        if more.olds is not None and whole.forwarded.olds is None:
            whole.forwarded.olds = []
        whole.forwarded.extend(more.records, more.causes, more.olds or [])
        if more.origins is not None and whole.forwarded.origins is not None:
            whole.forwarded.origins.extend(more.origins)
    whole.late += step.late
    whole.dead += step.dead
    whole.decisions += step.decisions
    whole.failure = step.failure


def _copy_of(counts: Counts) -> Counts:
    copied = copy(counts)
    copied.dropped = dict(counts.dropped)
    return copied
