"""The leader's part, told by examples, and under any claims."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from headrace.services.group.assign import assign
from headrace.services.group.member import AT_ONCE_MS, NEVER_MS, Member, Rules, Share, TaskId
from tests.group.claims import check_any_claims, groups, rules

HOP = frozenset({0})


def tasks(*partitions: int) -> frozenset[TaskId]:
    """Tasks of the first hop."""
    return frozenset(TaskId(0, partition) for partition in partitions)


def told(count: int, rules: Rules | None = None, /, **members: Member) -> dict[str, Share]:
    """Return the members' shares of so many tasks."""
    return assign(sorted(tasks(*range(count))), members, rules or Rules())


def member(client: str, *owned: int, generation: int = 1, lags: str = "") -> Member:
    """A member; its lags are written as `task:lag task:lag`."""
    pairs = (pair.split(":") for pair in lags.split())
    return Member(
        client,
        HOP,
        tasks(*owned),
        generation,
        lags={TaskId(0, int(partition)): int(lag) for partition, lag in pairs},
    )


test_any_claims = given(groups(), rules)(check_any_claims)


def test_a_task_moves_in_two_rounds() -> None:
    ready = member("y", lags="1:5")
    first = told(2, a=member("x", 0, 1), b=ready)
    assert first["a"] == Share(active=tasks(0), next_rebalance_ms=AT_ONCE_MS)
    assert first["b"] == Share(promoted=tasks(1), next_rebalance_ms=AT_ONCE_MS)
    second = told(2, a=member("x", 0, generation=2), b=ready)
    assert second["b"] == Share(active=tasks(1))


def test_a_member_that_has_not_caught_up_learns_while_the_owner_goes_on() -> None:
    shares = told(2, a=member("x", 0, 1), b=member("y", lags="1:1001"))
    assert shares["a"] == Share(active=tasks(0, 1), next_rebalance_ms=600_000)
    assert shares["b"] == Share(learners=tasks(1), next_rebalance_ms=NEVER_MS)


def test_a_copy_that_stands_in_for_another_is_given_up_later() -> None:
    """One host has both copies; evenness moves one, which is kept until the move is done."""
    follows = replace(member("z", lags="0:0 1:0"), following=tasks(0, 1))
    others = {"a": member("x", 0), "b": member("y"), "c": member("w", 1)}
    shares = told(2, Rules(standbys=1), **others, d=follows)
    assert shares["d"].standbys == tasks(0, 1)
    assert shares["b"].standbys == tasks(1)
    assert [shares[name].next_rebalance_ms for name in "abcd"] == [600_000] + [NEVER_MS] * 3
    there = {**others, "b": replace(member("y", lags="1:0"), following=tasks(1))}
    shares = told(2, Rules(standbys=1), **there, d=follows)
    assert (shares["b"].standbys, shares["d"].standbys) == (tasks(1), tasks(0))
    assert {share.next_rebalance_ms for share in shares.values()} == {NEVER_MS}


def test_an_owner_gives_up_what_somebody_else_has_a_copy_of() -> None:
    shares = told(4, a=member("x", 0, 1, 2, 3), b=member("y", lags="0:90000 2:50000"))
    assert shares["b"].learners == tasks(0, 2)


def test_warmups_are_few_and_those_that_are_nearest_to_the_end() -> None:
    learner = member("y", lags="0:90000 2:50000")
    shares = told(6, Rules(max_warmup_replicas=1), a=member("x", 0, 1, 2, 3, 4, 5), b=learner)
    assert shares["b"].learners == tasks(2)


def test_the_first_step_prefers_the_previous_owner() -> None:
    before = Member("y", HOP, previous=tasks(0), lags={TaskId(0, 0): 0})
    shares = told(1, a=member("x", lags="0:0"), b=before)
    assert shares["b"].active == tasks(0)


def test_the_second_step_prefers_the_copy_that_lacks_least() -> None:
    shares = told(1, a=member("x", lags="0:9000"), b=member("y", lags="0:8000"))
    assert shares["b"].active == tasks(0)


def test_the_third_step_prefers_the_least_loaded() -> None:
    shares = told(4, a=member("x", 0), b=member("y"))
    assert shares["a"].active == tasks(0, 2)
    assert shares["b"].active == tasks(1, 3)


def test_an_orphan_runs_at_once_where_a_copy_is_and_moves_later() -> None:
    shares = told(3, a=member("x", 0, 1, lags="2:0"), b=member("y"))
    assert shares["a"].active == tasks(0, 1, 2)
    assert len(shares["b"].learners) == 1


def test_a_stale_claim_never_stops_the_owner() -> None:
    owner, zombie = member("x", 0, generation=7), member("y", 0, generation=5)
    assert told(1, a=owner, b=zombie)["a"].active == tasks(0)
    assert told(1, a=zombie, b=owner)["b"].active == tasks(0)


def test_two_claims_of_one_generation_are_both_given_up() -> None:
    shares = told(1, a=member("x", 0), b=member("y", 0), c=member("z"))
    assert [share.active for share in shares.values()] == [frozenset()] * 3
    assert {share.next_rebalance_ms for share in shares.values()} == {AT_ONCE_MS}


def test_a_member_that_missed_a_round_goes_on() -> None:
    missed = member("x", 0, 1, generation=3)
    shares = told(3, a=missed, b=member("y", 2, generation=9))
    assert shares["a"].active == tasks(0, 1)


def test_standbys_are_where_copies_are_and_never_with_the_owner() -> None:
    rules = Rules(standbys=1)
    shares = told(
        2, rules, a=member("x", 0, lags="1:9"), b=member("y", 1), c=member("z", lags="0:3")
    )
    assert shares["a"].standbys == tasks(1)
    assert shares["c"].standbys == tasks(0)


def test_one_member_alone_has_no_standby() -> None:
    assert told(2, Rules(standbys=2), a=member("x"))["a"] == Share(active=tasks(0, 1))
