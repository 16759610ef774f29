"""The table of states, and what follows from it."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.services.group.learner import (
    FOLLOWING,
    OWNING,
    READY,
    TRANSITIONS,
    Action,
    Event,
    ImpossibleTransition,
    State,
    step,
)

TOLD = [event for event in Event if event.name.startswith("TOLD")]
ALL = [
    pytest.param(state, event, id=f"{state.value}, {event.value}")
    for state, event in product(State, Event)
]


@pytest.mark.parametrize(("state", "event"), ALL)
def test_a_transition_that_is_not_in_the_table_is_a_mistake(state: State, event: Event) -> None:
    if event in TRANSITIONS[state]:
        assert step(state, event) == TRANSITIONS[state][event]
    else:
        with pytest.raises(ImpossibleTransition, match=f"{state.value} cannot be {event.value}"):
            step(state, event)


def test_a_mistake_is_not_an_error_that_anybody_handles() -> None:
    assert issubclass(ImpossibleTransition, AssertionError)


@pytest.mark.parametrize("state", State)
def test_a_member_that_may_join_can_be_told_anything(state: State) -> None:
    may_join = state not in {State.REVOKING, State.LOST}
    assert all((event in TRANSITIONS[state]) == may_join for event in TOLD)


@pytest.mark.parametrize("state", State)
def test_anybody_can_be_thrown_out_and_owns_nothing_then(state: State) -> None:
    after, action = step(state, Event.THROWN_OUT)
    assert after not in OWNING
    assert (action is Action.ABANDON) == (state in OWNING)


@pytest.mark.parametrize(("state", "event"), ALL)
def test_actions_are_what_the_change_needs(state: State, event: Event) -> None:
    if event not in TRANSITIONS[state]:
        return
    after, action = step(state, event)
    begins = after in OWNING and state not in OWNING
    assert (action is Action.ACTIVATE) == begins
    assert (action is Action.REVOKE) == (after is State.REVOKING and state is not State.REVOKING)
    assert (action is Action.FOLLOW) == (state is State.NONE and after in FOLLOWING)
    assert (action is Action.LEAVE) == (state in FOLLOWING and after is State.NONE)


@pytest.mark.parametrize(("state", "event"), ALL)
def test_an_owner_lets_go_only_by_closing_or_when_it_is_thrown_out(
    state: State, event: Event
) -> None:
    if state in OWNING and event in TRANSITIONS[state]:
        after, _ = step(state, event)
        assert after in OWNING or event in {Event.CLOSED, Event.THROWN_OUT}


def test_the_way_of_a_learner() -> None:
    state = State.NONE
    seen = []
    for event in (
        Event.TOLD_LEARNER,
        Event.REACHED,
        Event.TOLD_PROMOTED,
        Event.TOLD_ACTIVE,
        Event.OPENED,
        Event.TOLD_STANDBY,
        Event.CLOSED,
        Event.TOLD_STANDBY,
    ):
        state, action = step(state, event)
        seen.append((state, action))
    assert seen == [
        (State.LEARNER, Action.FOLLOW),
        (State.CAUGHT_UP, Action.ASK),
        (State.PROMOTING, None),
        (State.ACTIVATING, Action.ACTIVATE),
        (State.ACTIVE, None),
        (State.REVOKING, Action.REVOKE),
        (State.NONE, None),
        (State.STANDBY, Action.FOLLOW),
    ]


def test_every_state_is_one_thing() -> None:
    assert not OWNING & FOLLOWING
    assert READY < FOLLOWING
    assert set(State) - OWNING - FOLLOWING == {State.NONE, State.LOST}
