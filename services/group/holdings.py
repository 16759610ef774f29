"""One member's tasks: what the group tells it, what it has to do, and what it reports next.

The runtime reports what happened, and carries out the steps that this returns. It joins the group
again only when no task is being revoked or lost: then its report is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.services.group.learner import FOLLOWING, OWNING, READY, Action, Event, State, step
from headrace.services.group.member import Share, TaskId


class Step(NamedTuple):
    """An action that the runtime must take for one task."""

    task: TaskId
    action: Action


class Holdings:
    """One member's tasks."""

    def __init__(self, acceptable_recovery_lag: int, previous: Iterable[TaskId] = ()) -> None:
        """Begin with no task; `previous` are the tasks that this host ran last, if known."""
        self._ran = frozenset(previous)
        """Tasks that it ran until it was cut off, until the group has decided about them."""
        self._acceptable_recovery_lag = acceptable_recovery_lag
        self._states: dict[TaskId, State] = {}
        self._told: dict[TaskId, Event] = {}
        self._lags: dict[TaskId, int] = {}
        self._gave_up: set[TaskId] = set()
        """Tasks that it closed with a commit: its copy lacks nothing until it is measured."""

    def state(self, task: TaskId) -> State:
        """Return the state of a task."""
        return self._states.get(task, State.NONE)

    @property
    def states(self) -> Mapping[TaskId, State]:
        """Every task that the member has to do with, and its state."""
        return self._states

    @property
    def owned(self) -> frozenset[TaskId]:
        """The tasks that the member claims."""
        return self._in(OWNING)

    @property
    def previous(self) -> frozenset[TaskId]:
        """The tasks that it runs, ran until it was cut off, or was promised: its claim comes first.

        If it forgot a promise after the owner has given the task up, the task could go back.
        """
        return self.owned | self._ran | self._in({State.PROMOTING})

    @property
    def following(self) -> frozenset[TaskId]:
        """The tasks whose changelogs it reads beside the owner."""
        return self._in(FOLLOWING)

    @property
    def learning(self) -> frozenset[TaskId]:
        """The tasks that it has yet to catch up with; with none left, it need not wait to ask."""
        return self._in({State.LEARNER})

    @property
    def is_settled(self) -> bool:
        """Whether it may join the group."""
        return not self._in({State.REVOKING, State.LOST})

    @property
    def lags(self) -> dict[TaskId, int]:
        """The records that each of its copies lacks, as it reports them."""
        owned, ready = self.owned, self._in(READY)
        lags = {task: max(0, lag) for task, lag in self._lags.items() if task not in owned}
        return lags | dict.fromkeys(ready | (self._gave_up & self.following), 0)

    def told(self, share: Share) -> list[Step]:
        """Take the member's share of the tasks; return what to do."""
        self._told = dict.fromkeys(share.active, Event.TOLD_ACTIVE)
        self._told |= dict.fromkeys(share.promoted, Event.TOLD_PROMOTED)
        self._told |= dict.fromkeys(share.learners, Event.TOLD_LEARNER)
        self._told |= dict.fromkeys(share.standbys, Event.TOLD_STANDBY)
        self._ran = frozenset()
        steps = []
        for task in sorted({*self._told, *self._states}):
            steps += self._step(task, self._told.get(task, Event.TOLD_NOTHING))
        self._gave_up &= self.following
        return steps

    def measured(self, lags: Mapping[TaskId, int]) -> list[Step]:
        """Note how many records each copy lacks, followed or on disk; return what to do."""
        self._lags = dict(lags)
        self._gave_up -= lags.keys()
        steps = []
        for task in sorted(self.learning):
            if task in lags and lags[task] <= self._acceptable_recovery_lag:
                steps += self._step(task, Event.REACHED)
        return steps

    def opened(self, task: TaskId) -> None:
        """Note that a task has read its tail, and runs."""
        steps = self._step(task, Event.OPENED)
        assert not steps

    def closed(self, task: TaskId) -> list[Step]:
        """Note that a revoked or lost task is closed; begin what the group assigned instead."""
        if self.state(task) is State.REVOKING:
            self._gave_up.add(task)
        steps = self._step(task, Event.CLOSED)
        return steps + self._step(task, self._told.get(task, Event.TOLD_NOTHING))

    def thrown_out(self) -> list[Step]:
        """Give up all tasks: the group goes on without this member, and may give them to others."""
        self._ran |= self.owned
        self._told = {}
        steps = []
        for task in sorted(self._states):
            steps += self._step(task, Event.THROWN_OUT)
        return steps

    def _step(self, task: TaskId, event: Event) -> list[Step]:
        state, action = step(self.state(task), event)
        if state is State.NONE:
            self._states.pop(task, None)
        else:
            self._states[task] = state
        return [] if action is None else [Step(task, action)]

    def _in(self, states: Iterable[State]) -> frozenset[TaskId]:
        return frozenset(task for task, state in self._states.items() if state in states)
