"""A member's tasks: what it is told, what it does, what it says."""

from __future__ import annotations

import pytest

from headrace.services.group.holdings import Holdings, Step
from headrace.services.group.learner import Action, ImpossibleTransition, State
from headrace.services.group.member import Share, TaskId

ONE, TWO, THREE = TaskId(0, 1), TaskId(0, 2), TaskId(0, 3)


def running(*tasks: TaskId) -> Holdings:
    """A member that runs these."""
    holdings = Holdings(10)
    holdings.told(Share(active=frozenset(tasks)))
    for task in tasks:
        holdings.opened(task)
    return holdings


def test_an_activated_task_is_its_own_before_it_runs() -> None:
    holdings = Holdings(10)
    assert holdings.told(Share(active=frozenset({ONE}))) == [Step(ONE, Action.ACTIVATE)]
    assert holdings.owned == {ONE}


def test_a_revoked_task_is_its_own_until_it_is_closed() -> None:
    holdings = running(ONE, TWO)
    assert holdings.told(Share(active=frozenset({ONE}))) == [Step(TWO, Action.REVOKE)]
    assert holdings.owned == {ONE, TWO}
    assert not holdings.is_settled
    assert holdings.closed(TWO) == []
    assert holdings.owned == {ONE}
    assert holdings.is_settled


def test_a_revoked_task_becomes_what_the_member_was_told() -> None:
    holdings = running(ONE)
    holdings.told(Share(standbys=frozenset({ONE})))
    assert holdings.closed(ONE) == [Step(ONE, Action.FOLLOW)]
    assert holdings.state(ONE) is State.STANDBY


def test_a_copy_of_what_it_gave_up_lacks_nothing_until_it_is_measured() -> None:
    holdings = running(ONE, TWO)
    holdings.told(Share(standbys=frozenset({ONE, TWO})))
    holdings.closed(ONE)
    holdings.closed(TWO)
    assert holdings.lags == {ONE: 0, TWO: 0}
    holdings.measured({TWO: 7})
    holdings.told(Share(standbys=frozenset({ONE, TWO})))
    assert holdings.lags == {ONE: 0, TWO: 7}
    holdings.told(Share(standbys=frozenset({TWO})))
    holdings.told(Share(standbys=frozenset({ONE, TWO})))
    assert holdings.lags == {TWO: 7}


def test_a_copy_of_what_it_lost_is_as_good_as_it_is_measured() -> None:
    holdings = running(ONE)
    holdings.thrown_out()
    holdings.closed(ONE)
    assert holdings.told(Share(standbys=frozenset({ONE}))) == [Step(ONE, Action.FOLLOW)]
    assert holdings.lags == {}


def test_a_learner_asks_once_it_has_caught_up_and_says_so_from_then_on() -> None:
    holdings = Holdings(10)
    holdings.told(Share(learners=frozenset({ONE, TWO})))
    assert holdings.measured({ONE: 11, TWO: 500}) == []
    assert holdings.measured({ONE: 10, TWO: 500}) == [Step(ONE, Action.ASK)]
    assert holdings.learning == {TWO}
    assert holdings.measured({ONE: 900, TWO: 500}) == []
    assert holdings.lags == {ONE: 0, TWO: 500}


def test_a_learner_that_caught_up_between_joining_and_hearing_asks_again() -> None:
    holdings = Holdings(10)
    holdings.told(Share(learners=frozenset({ONE})))
    holdings.measured({ONE: 0})
    assert holdings.told(Share(learners=frozenset({ONE}))) == [Step(ONE, Action.ASK)]


def test_a_standby_asks_for_nothing() -> None:
    holdings = Holdings(10)
    holdings.told(Share(standbys=frozenset({ONE})))
    assert holdings.measured({ONE: 0}) == []


def test_lags_are_of_copies_alone_and_never_below_zero() -> None:
    holdings = running(ONE)
    holdings.measured({ONE: 4, TWO: -3, THREE: 7})
    assert holdings.lags == {TWO: 0, THREE: 7}


def test_a_member_that_is_thrown_out_claims_nothing_and_remembers_what_it_ran() -> None:
    holdings = running(ONE)
    holdings.told(Share(active=frozenset({ONE}), standbys=frozenset({TWO})))
    assert holdings.thrown_out() == [Step(ONE, Action.ABANDON)]
    assert holdings.owned == frozenset()
    assert holdings.previous == {ONE}
    assert not holdings.is_settled
    assert holdings.closed(ONE) == []
    assert holdings.state(TWO) is State.STANDBY, "a changelog is read without a group"
    assert holdings.told(Share()) == [Step(TWO, Action.LEAVE)]
    assert holdings.previous == frozenset(), "the group has decided"


def test_a_promised_task_is_its_own_first() -> None:
    holdings = running(ONE)
    holdings.told(Share(active=frozenset({ONE}), promoted=frozenset({TWO})))
    assert holdings.owned == {ONE}
    assert holdings.previous == {ONE, TWO}
    holdings.told(Share(active=frozenset({ONE}), learners=frozenset({TWO})))
    assert holdings.previous == {ONE}


def test_a_member_is_told_nothing_before_it_has_closed_revoked_tasks() -> None:
    holdings = running(ONE)
    holdings.told(Share())
    with pytest.raises(ImpossibleTransition, match="revoking cannot be told to run it"):
        holdings.told(Share(active=frozenset({ONE})))
