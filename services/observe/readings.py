"""Readings of metrics that take more than one field of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import get_args

from headrace.contracts.dead_letter import INTAKE
from headrace.contracts.decision import Reason
from headrace.services.observe.snapshot import (
    CopyRole,
    OperatorKind,
    OperatorSnapshot,
    StateMemory,
    SuppressSnapshot,
    TaskSnapshot,
    TaskState,
    WorkerSnapshot,
    WorkerState,
)

Number = int | float
Reading = Number | dict[str, int] | dict[str, float] | dict[Reason, int] | None
"""None: no series. A dictionary: one series for each value of the metric's own label."""

_INTAKE_REASONS = (
    Reason.UNDECODABLE,
    Reason.FAILED,
    Reason.NEGATIVE_TIMESTAMP,
    Reason.FUTURE_TIMESTAMP,
)
_UNSENT_REASONS = (Reason.TOO_LARGE, Reason.UNDECODABLE, Reason.FAILED)
_DROP_REASONS: Mapping[OperatorKind, tuple[Reason, ...]] = {
    "reorder": (Reason.PAST_GRACE,),
    "deduplicate": (Reason.DUPLICATE, Reason.PAST_INTERVAL),
    "distinct": (
        Reason.DUPLICATE,
        Reason.PAST_GRACE,
        Reason.NULL_KEY,
        Reason.NEGATIVE_TIMESTAMP,
    ),
    "table": (Reason.NULL_KEY,),
    "filter": (Reason.FILTERED,),
    "sample": (Reason.SAMPLED_OUT,),
    "aggregate": (
        Reason.PAST_GRACE,
        Reason.NULL_KEY,
        Reason.NULL_VALUE,
        Reason.NEGATIVE_TIMESTAMP,
    ),
    "suppress": (Reason.NULL_KEY, Reason.EMPTY_WINDOW),
}
"""A reason has a series from the beginning, since a rate needs a zero to begin with."""


def seconds(milliseconds: float | None) -> float | None:
    """Milliseconds as Prometheus has times."""
    return None if milliseconds is None else milliseconds / 1000


def ahead(of: int | None, offset: int | None) -> int | None:
    """How far an offset is behind another, where both are known."""
    return None if of is None or offset is None else max(0, of - offset)


def worker_states(worker: WorkerSnapshot) -> dict[str, int]:
    """1 for the state that the worker is in."""
    return {state: int(state == worker.state) for state in get_args(WorkerState)}


def tasks_by_state(worker: WorkerSnapshot) -> dict[str, int]:
    """How many tasks are in each state."""
    states = [task.state for task in worker.tasks]
    return {state: states.count(state) for state in get_args(TaskState)}


def heartbeat_age_seconds(worker: WorkerSnapshot) -> float | None:
    """How long ago the coordinator last answered."""
    return None if worker.heartbeat_at_s is None else worker.taken_at_s - worker.heartbeat_at_s


def copies_by_role(worker: WorkerSnapshot) -> dict[str, int]:
    """How many copies of state are kept up for each purpose."""
    roles = [copy.role for copy in worker.copies]
    return {role: roles.count(role) for role in get_args(CopyRole)}


def copy_lags(worker: WorkerSnapshot) -> dict[str, int]:
    """How far each copy is behind, where that is known."""
    return {copy.task: copy.lag for copy in worker.copies if copy.lag is not None}


def of_memory(read: Callable[[StateMemory], int]) -> Callable[[WorkerSnapshot], Reading]:
    """A metric of RocksDB's memory, once there is state."""
    return lambda worker: None if worker.memory is None else read(worker.memory)


def intake_dead(task: TaskSnapshot) -> dict[Reason, int]:
    """Records that could not be read, by reason."""
    return _by_reason(_INTAKE_REASONS, task.intake_dead)


def unsent(task: TaskSnapshot) -> dict[Reason, int]:
    """Records that could not be sent, by reason."""
    return _by_reason(_UNSENT_REASONS, task.unsent)


def dropped(operator: OperatorSnapshot) -> dict[Reason, int]:
    """Records that ended at an operator, by reason."""
    return _by_reason(_DROP_REASONS[operator.kind], operator.counts.dropped)


def _by_reason(always: tuple[Reason, ...], counts: Mapping[Reason, int]) -> dict[Reason, int]:
    return dict.fromkeys(always, 0) | dict(counts)


def lateness_avg_seconds(task: TaskSnapshot) -> float:
    """Over all records; those on time count as 0."""
    return task.lateness.sum_ms / 1000 / max(1, task.lateness.records)


def overtime_min_seconds(task: TaskSnapshot) -> dict[str, float]:
    """KIP-328's formula: the wait less the lateness that was seen."""
    return {name: wait - task.lateness.max_ms / 1000 for name, wait in _waits(task).items()}


def overtime_avg_seconds(task: TaskSnapshot) -> dict[str, float]:
    """As the least one, with the average lateness."""
    return {name: wait - lateness_avg_seconds(task) for name, wait in _waits(task).items()}


def _waits(task: TaskSnapshot) -> dict[str, float]:
    """Of what stands before a reorder; behind it records do not come as they came to the task."""
    as_they_came = takewhile(lambda operator: operator.kind != "reorder", task.operators)
    return {
        operator.name: operator.suppress.wait_ms / 1000
        for operator in as_they_came
        if operator.suppress is not None
    }


def unbalanced(task: TaskSnapshot) -> dict[str, int]:
    """Zero everywhere; what the intake takes is turned away or reaches the operators."""
    balances = {operator.name: operator.counts.balance() for operator in task.operators}
    if task.operators:
        turned_away = task.guarded_records + sum(task.intake_dead.values())
        arrived = task.operators[0].counts.taken
        balances[INTAKE] = task.taken_records - turned_away - arrived
    return balances


def only(
    *kinds: OperatorKind, read: Callable[[OperatorSnapshot], Reading]
) -> Callable[[OperatorSnapshot], Reading]:
    """A metric of the operators that can have it; the others would say zero for ever."""
    return lambda operator: read(operator) if operator.kind in kinds else None


def of_suppress(
    read: Callable[[SuppressSnapshot], Number],
) -> Callable[[OperatorSnapshot], Reading]:
    """A metric that only a suppress has."""
    return lambda operator: None if operator.suppress is None else read(operator.suppress)


def late_drops(operator: OperatorSnapshot) -> int:
    """Records past the grace that were not forwarded; an aggregate counts them by window."""
    if operator.kind == "aggregate":
        return operator.counts.windows_refused
    return _past(operator, Reason.PAST_GRACE)


def expired_drops(operator: OperatorSnapshot) -> int:
    """Records older than all that is remembered, which were not forwarded."""
    return _past(operator, Reason.PAST_INTERVAL)


def _past(operator: OperatorSnapshot, reason: Reason) -> int:
    return operator.counts.late + operator.counts.dropped.get(reason, 0)
