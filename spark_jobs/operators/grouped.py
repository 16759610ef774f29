"""The aggregation in stages: its rows live in one task, and their groups in another.

    table -> Part --parts--> Folded -> result

Each stage is a processor of its own. A part has the old value, the new one and the key of its row,
or, instead of many parts of a group, their net value and no row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headrace.contracts.errors import StateRefused
from headrace.spark_jobs.operators.columns import PART
from headrace.spark_jobs.operators.messages import Received, received, sent_all
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.running import Running
from headrace.spark_jobs.operators.topology import AggregateStep, Step, TableStep
from headrace.spark_jobs.operators.updates import merged
from headrace.spark_jobs.versioned.aggregation import Folding, Parts, Regrouping, Standing
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals, observe_lateness
from headrace.spark_jobs.versioned.changes import Change, Changes, all_changes, numbered
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import MERGED
from headrace.spark_jobs.versioned.tables import Plain, Table, Versioned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.totals import Net

PART_SENT = "part"
"""The verdict of the messages from one stage to the next."""


@dataclass(frozen=True)
class PartStep:
    """The stage of the rows: it turns each change into changes within groups."""

    name: str
    parent: Step
    aggregate: AggregateStep
    nets: bool = False
    """Whether the parts of a group may leave as one."""

    @classmethod
    def of(cls, aggregate: AggregateStep, *, is_end: bool) -> PartStep:
        """Make the stage before an aggregation, which may be the end of its topology.

        Parts leave as one only there. Steps behind may keep each update with its time.
        """
        is_plain = not isinstance(aggregate.storage, Versioned)
        nets = is_end and is_plain and aggregate.updates == "last"
        return cls(aggregate.name, aggregate.parent, aggregate, nets)

    def open(self, state: TaskState) -> _Parts:
        """Open the stage over the state of a task."""
        return _Parts(state, self)


class _Parts(Running):
    def __init__(self, state: TaskState, step: PartStep) -> None:
        self._state = state
        self._updates = step.aggregate.updates
        self._parent = step.parent.open(state)
        self._parent.send_old(force=True)
        self._regrouping = Regrouping(state, step.name, step.aggregate.regroup)
        self._net = step.aggregate.aggregation.net if step.nets else None

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        changes = all_changes(self._parent, arrivals)
        changes = merged(changes, self._updates, self._state)
        parts = self._regrouping.split_all(changes, versioned=self._parent.versioned)
        changes = changes.where(parts.places)
        if self._net is not None:
            size = len(parts.groups)
            parts, changes = _netted(parts, changes, self._net)
            self._state.count(MERGED, size - len(parts.groups))
        messages = sent_all(changes.records, parts.olds, parts.news, changes.keys)
        return [Results.of(PART_SENT, changes)._replace(keys=parts.groups, values=messages)]


def _netted(parts: Parts, changes: Changes, net: Net) -> tuple[Parts, Changes]:
    """Put one part, without a row, in the place of those of a group; `changes` are the parts' own.

    It has the record of the last of them, and the highest time.
    """
    numbers, count = numbered(parts.groups)
    if count == len(numbers):
        return parts, changes
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1)).tolist()
    all_olds, all_news = parts.olds[order].tolist(), parts.news[order].tolist()
    highest_ms = np.maximum.reduceat(changes.times_ms[order], bounds[:-1])
    stays = np.ones(len(order), np.bool_)
    olds, news, rows = parts.olds.copy(), parts.news.copy(), changes.keys.copy()
    times_ms = changes.times_ms.copy()
    for group, (start, end) in enumerate(pairwise(bounds)):
        if end - start == 1:
            continue
        values = all_olds[start:end], all_news[start:end]
        try:
            value = net(*([each for each in of if each is not None] for of in values))
        except Exception:  # noqa: BLE001, S112 - one by one, the value that fails is found
            continue
        stays[order[start : end - 1]] = False
        last = order[end - 1]
        olds[last], news[last], rows[last] = None, value, None
        times_ms[last] = highest_ms[group]
    parts = parts._replace(olds=olds, news=news).where(stays)
    return parts, changes._replace(keys=rows, times_ms=times_ms).where(stays)


@dataclass(frozen=True)
class FoldedStep(TableStep):
    """The stage of the groups: it keeps their aggregates."""

    name: str
    aggregate: AggregateStep

    def open(self, state: TaskState) -> Table:
        """Open the aggregates, a table like any other."""
        return _Folded(state, self)


class _Folded(Folding):
    """A group treats a row whose change failed there as unchanged.

    The row's next change has an old value that was never added, or none although one is still
    counted here. So the stage remembers the value that is counted, and takes it for the old value
    then.
    """

    def __init__(self, state: TaskState, step: FoldedStep) -> None:
        aggregate, last_alone = step.aggregate, step.updates == "last"
        storage = aggregate.storage or Plain()
        super().__init__(state, step.name, aggregate.aggregation, storage, last_alone=last_alone)
        self._standing = Standing(state, step.name)
        state.when_forgone(self._forgo)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Fold a change within a group."""
        if arrival.input != -PART:
            return ()
        group, row, change = _part(cause, arrival.record)
        if row is not None:
            change = change._replace(old=self._standing.pop(group, row, change.old))
        if change.old is None and change.new is None:
            return ()
        return self.fold(change)

    def take_all(self, arrivals: Arrivals) -> Changes:
        """Do as `take` for many."""
        places = np.flatnonzero(arrivals.inputs == -PART)
        parts = arrivals.records.take(places)
        messages = Received(parts, 3)
        sent_olds, news, rows = messages.parts()
        groups = parts.keys
        olds = objects(self._standing.pop_all(groups, rows, sent_olds))
        changes = Changes.of_new(places, groups, objects(news), parts.times_ms, messages.records())
        changes = changes._replace(olds=olds)
        return self.fold_all(changes.where(are_present(olds) | are_present(changes.news)))

    def _forgo(self, arrival: Arrival) -> None:
        if arrival.input == -PART:
            group, row, change = _part(0, arrival.record)
            if row is None:
                message = (
                    f"`{self.name}` cannot add what its `net` made of many values, and would lose"
                    " them; have `net` raise where `add` or `subtract` would, or leave it out"
                )
                raise StateRefused(message)
            self._standing.put(group, row, self._standing.pop(group, row, change.old))


def _part(cause: int, record: Record) -> tuple[bytes, bytes | None, Change]:
    """Return the group, the row and the change of a part; many parts in one have no row."""
    (old, new, row), origin = received(record)
    group = record.key
    assert group is not None
    change = Change(cause, group, new, old, record.timestamp_ms, is_latest=True, record=origin)
    return group, row, change
