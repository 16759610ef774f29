"""The states of a task at one member, and how they change: events x states -> state and action.

    none ----> learner ----> caught up ----> promoting ----> activating ----> active
     |            follows the changelog         the owner      reads the tail   runs
     |            beside the owner              gives it up    behind it
     |----> standby ----------------------------------------> activating
     '---- nobody has it -----------------------------------> activating

    activating, active ----> revoking ----> none, and then what the member is told to be
    activating, active, revoking ----> lost ----> none       it was thrown out of the group

A transition that is not in the table cannot happen unless we made a mistake. It then raises an
error, and is never guessed. A member is never told anything about a task while it is revoking or
lost: it joins the group again only when the task is closed.

Once the old owner has closed the task, the new one reads the changelog to its very end, however
many records it reported to lack. So the time of a promotion decides how long the task stands still.
It never changes the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class State(Enum):
    """The state of a task at one member."""

    NONE = "none"
    """The member has nothing to do with the task; a copy of its state may lie on its disk."""
    LEARNER = "learner"
    """The member follows the changelog, to own the task once it has caught up."""
    CAUGHT_UP = "caught up"
    """The member has caught up, and has asked for the rebalance that promotes it."""
    PROMOTING = "promoting"
    """The owner is giving the task up; the member goes on following until it is told to run."""
    ACTIVATING = "activating"
    """The member is the owner, and reads the rest of the changelog."""
    ACTIVE = "active"
    """The member runs the task."""
    REVOKING = "revoking"
    """The member is still the owner, and commits its open work."""
    STANDBY = "standby"
    """The member follows the changelog in case the owner dies."""
    LOST = "lost"
    """The member was the owner until it was thrown out; another member may be by now."""


class Event(Enum):
    """An event for a task, as a member sees it."""

    TOLD_ACTIVE = "told to run it"
    TOLD_PROMOTED = "told that it is next"
    TOLD_LEARNER = "told to learn it"
    TOLD_STANDBY = "told to stand by"
    TOLD_NOTHING = "not told about it"
    REACHED = "near enough to the changelog's end"
    OPENED = "it runs"
    CLOSED = "it is closed"
    THROWN_OUT = "thrown out of the group"


class Action(Enum):
    """An action that a member must take."""

    FOLLOW = "read the changelog, and go on reading it"
    LEAVE = "stop reading, and close the copy"
    ASK = "ask for a rebalance"
    ACTIVATE = "fence earlier owners, read the changelog to its end, and run"
    REVOKE = "take in no more, commit what is under way, and close"
    ABANDON = "stop without a commit, and close"


class ImpossibleTransition(AssertionError):
    """An event that a task's state does not allow: a mistake of ours."""


_S, _E, _A = State, Event, Action
Row = dict[Event, tuple[State, Action | None]]

_TOLD_WHILE_FOLLOWING: Row = {
    _E.TOLD_ACTIVE: (_S.ACTIVATING, _A.ACTIVATE),
    _E.TOLD_PROMOTED: (_S.PROMOTING, None),
    _E.TOLD_LEARNER: (_S.LEARNER, None),
    _E.TOLD_STANDBY: (_S.STANDBY, None),
    _E.TOLD_NOTHING: (_S.NONE, _A.LEAVE),
}
_TOLD_WHILE_OWNING: Row = {
    _E.TOLD_PROMOTED: (_S.REVOKING, _A.REVOKE),
    _E.TOLD_LEARNER: (_S.REVOKING, _A.REVOKE),
    _E.TOLD_STANDBY: (_S.REVOKING, _A.REVOKE),
    _E.TOLD_NOTHING: (_S.REVOKING, _A.REVOKE),
    _E.THROWN_OUT: (_S.LOST, _A.ABANDON),
}
TRANSITIONS: Mapping[State, Row] = MappingProxyType(
    {
        _S.NONE: {
            _E.TOLD_ACTIVE: (_S.ACTIVATING, _A.ACTIVATE),
            _E.TOLD_PROMOTED: (_S.PROMOTING, _A.FOLLOW),
            _E.TOLD_LEARNER: (_S.LEARNER, _A.FOLLOW),
            _E.TOLD_STANDBY: (_S.STANDBY, _A.FOLLOW),
            _E.TOLD_NOTHING: (_S.NONE, None),
            _E.THROWN_OUT: (_S.NONE, None),
        },
        # Reading a changelog needs no group, so a member that was thrown out reads on.
        _S.LEARNER: _TOLD_WHILE_FOLLOWING
        | {
            _E.REACHED: (_S.CAUGHT_UP, _A.ASK),
            _E.THROWN_OUT: (_S.LEARNER, None),
        },
        # It caught up after it had joined, so the leader did not know: it asks once more.
        _S.CAUGHT_UP: _TOLD_WHILE_FOLLOWING
        | {
            _E.TOLD_LEARNER: (_S.CAUGHT_UP, _A.ASK),
            _E.THROWN_OUT: (_S.LEARNER, None),
        },
        _S.PROMOTING: _TOLD_WHILE_FOLLOWING | {_E.THROWN_OUT: (_S.LEARNER, None)},
        _S.STANDBY: _TOLD_WHILE_FOLLOWING | {_E.THROWN_OUT: (_S.STANDBY, None)},
        _S.ACTIVATING: _TOLD_WHILE_OWNING
        | {
            _E.TOLD_ACTIVE: (_S.ACTIVATING, None),
            _E.OPENED: (_S.ACTIVE, None),
        },
        # A task that failed between two commits opens itself again, and is active all the while.
        _S.ACTIVE: _TOLD_WHILE_OWNING
        | {
            _E.TOLD_ACTIVE: (_S.ACTIVE, None),
            _E.OPENED: (_S.ACTIVE, None),
        },
        # The task may have opened just before the member was told to revoke it.
        _S.REVOKING: {
            _E.OPENED: (_S.REVOKING, None),
            _E.CLOSED: (_S.NONE, None),
            _E.THROWN_OUT: (_S.LOST, _A.ABANDON),
        },
        _S.LOST: {
            _E.OPENED: (_S.LOST, None),
            _E.CLOSED: (_S.NONE, None),
            _E.THROWN_OUT: (_S.LOST, None),
        },
    }
)

OWNING = frozenset({_S.ACTIVATING, _S.ACTIVE, _S.REVOKING})
"""No other member may be given a task that is in one of these states."""
FOLLOWING = frozenset({_S.LEARNER, _S.CAUGHT_UP, _S.PROMOTING, _S.STANDBY})
READY = frozenset({_S.CAUGHT_UP, _S.PROMOTING})
"""Copies that have caught up stay so. The last commit of an owner that gives up a task may be
larger than any acceptable lag, and must not send the task back to it."""


def step(state: State, event: Event) -> tuple[State, Action | None]:
    """Return the next state, and the action that the member must take."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        message = f"a task that is {state.value} cannot be {event.value}"
        raise ImpossibleTransition(message) from None
