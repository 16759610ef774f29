"""All tasks that a member has to do with: what it is told, what it does, and what it says next.

The runtime tells what happened and does the steps that come back. It joins the group again when no
task is being revoked or lost, and not before: what it says then is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.services.group.learner import FOLLOWING, OWNING, READY, Action, Event, State, step
from headrace.services.group.member import Share, TaskId


class Step(NamedTuple):
    """Something to be done, for one task."""

    task: TaskId
    action: Action


class Holdings:
    """One member's tasks."""

    def __init__(self, acceptable_recovery_lag: int, previous: Iterable[TaskId] = ()) -> None:
        """Nothing is held; `previous` is what this host ran when it last stopped, if known."""
        self._ran = frozenset(previous)
        """What it ran until it was cut off, until the group has decided about it."""
        self._acceptable_recovery_lag = acceptable_recovery_lag
        self._states: dict[TaskId, State] = {}
        self._told: dict[TaskId, Event] = {}
        self._lags: dict[TaskId, int] = {}

    def state(self, task: TaskId) -> State:
        """What a task is to this member."""
        return self._states.get(task, State.NONE)

    @property
    def states(self) -> Mapping[TaskId, State]:
        """Every task that is anything to this member."""
        return self._states

    @property
    def owned(self) -> frozenset[TaskId]:
        """What it claims."""
        return self._in(OWNING)

    @property
    def previous(self) -> frozenset[TaskId]:
        """What it runs, ran until it was cut off, or was promised: it has the first right to it.

        Were a promise forgotten when the owner has kept its part of it, the task could go back.
        """
        return self.owned | self._ran | self._in({State.PROMOTING})

    @property
    def following(self) -> frozenset[TaskId]:
        """Whose changelogs it reads beside the owner."""
        return self._in(FOLLOWING)

    @property
    def learning(self) -> frozenset[TaskId]:
        """What it has yet to catch up with; none left means that asking need not wait for more."""
        return self._in({State.LEARNER})

    @property
    def is_settled(self) -> bool:
        """Whether it may join the group."""
        return not self._in({State.REVOKING, State.LOST})

    @property
    def lags(self) -> dict[TaskId, int]:
        """What it says of its copies."""
        owned, ready = self.owned, self._in(READY)
        lags = {task: max(0, lag) for task, lag in self._lags.items() if task not in owned}
        return lags | dict.fromkeys(ready, 0)

    def told(self, share: Share) -> list[Step]:
        """The group has shared out its tasks."""
        self._told = dict.fromkeys(share.active, Event.TOLD_ACTIVE)
        self._told |= dict.fromkeys(share.promoted, Event.TOLD_PROMOTED)
        self._told |= dict.fromkeys(share.learners, Event.TOLD_LEARNER)
        self._told |= dict.fromkeys(share.standbys, Event.TOLD_STANDBY)
        self._ran = frozenset()
        steps = []
        for task in sorted({*self._told, *self._states}):
            steps += self._step(task, self._told.get(task, Event.TOLD_NOTHING))
        return steps

    def measured(self, lags: Mapping[TaskId, int]) -> list[Step]:
        """How many records each copy lacks: all that are followed, and those that lie on disk."""
        self._lags = dict(lags)
        steps = []
        for task in sorted(self.learning):
            if task in lags and lags[task] <= self._acceptable_recovery_lag:
                steps += self._step(task, Event.REACHED)
        return steps

    def opened(self, task: TaskId) -> None:
        """A task has read its tail, and runs."""
        steps = self._step(task, Event.OPENED)
        assert not steps

    def closed(self, task: TaskId) -> list[Step]:
        """A task that was revoked or lost is closed; what it was told to be instead begins."""
        steps = self._step(task, Event.CLOSED)
        return steps + self._step(task, self._told.get(task, Event.TOLD_NOTHING))

    def thrown_out(self) -> list[Step]:
        """The group goes on without this member: what it owned may have another owner."""
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
