"""Invariants that hold whatever happens: see `simulation` for the checks at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.group.learner import State
from headrace.services.group.member import Rules
from tests.group.machine import Group
from tests.group.simulation import Worker, World

TestGroup = Group.TestCase
TestGroup.settings = settings(stateful_step_count=35)
partitions = st.lists(st.integers(1, 9), min_size=1, max_size=2)
FAR = 10_000_000


def settled(partitions: list[int], workers: int, rules: Rules) -> World:
    """A group at rest."""
    world = World(partitions, rules)
    for _ in range(workers):
        world.join()
    world.settle()
    return world


def changed(world: World, happens: Callable[[], object]) -> dict[str, tuple[int, int]]:
    """How many tasks everybody who stayed lost and got, once the group is at rest again."""
    before = world.owned()
    happens()
    world.settle()
    world.check_settled()
    after = world.owned()
    return {
        name: (len(before[name] - after[name]), len(after[name] - before[name]))
        for name in before
        if name in after
    }


@given(partitions, st.integers(1, 5), st.integers(0, 2), st.integers(1, 4))
def test_a_member_that_joins_gets_tasks_and_no_other_does(
    partitions: list[int], workers: int, standbys: int, warmups: int
) -> None:
    world = settled(partitions, workers, Rules(standbys=standbys, max_warmup_replicas=warmups))
    moves, learned = world.moves, world.learned
    joined: list[Worker] = []
    difference = changed(world, lambda: joined.append(world.join()))
    assert all(got == 0 for _, got in difference.values())
    assert world.moves - moves == len(joined[0].holdings.owned)
    assert world.learned - learned <= world.moves - moves, "learned in vain"


@pytest.mark.parametrize("goes", [World.leave, World.crash])
@given(partitions, st.integers(2, 5), st.integers(0, 2), st.integers(0, 4))
def test_a_member_that_goes_leaves_tasks_and_no_other_does(
    goes: Callable[[World, Worker], object],
    partitions: list[int],
    workers: int,
    standbys: int,
    number: int,
) -> None:
    world = settled(partitions, workers, Rules(standbys=standbys))
    gone = sorted(world.workers.values(), key=lambda worker: worker.name)[number % workers]
    left = len(gone.holdings.owned)
    difference = changed(world, lambda: goes(world, gone))
    # A task that a standby took over at once may move on to where it is due.
    if not standbys:
        assert all(lost == 0 for lost, _ in difference.values())
        assert sum(got for _, got in difference.values()) == left
    kept = sum(max(0, lost - got) for lost, got in difference.values())
    assert kept == 0, "somebody who stayed has less than before"


@given(partitions, st.integers(2, 5), st.integers(0, 4))
def test_copies_that_have_caught_up_take_over_in_the_first_round(
    partitions: list[int], workers: int, number: int
) -> None:
    world = settled(partitions, workers, Rules(standbys=1))
    gone = sorted(world.workers.values(), key=lambda worker: worker.name)[number % workers]
    orphans = gone.holdings.owned
    world.run(world.rules.acceptable_recovery_lag + 1)
    for worker in world.workers.values():
        world.follow(worker, FAR)
    standing_by = {name: worker.holdings.following for name, worker in world.workers.items()}
    world.crash(gone)
    shares = world.round()
    assert orphans == orphans & {
        task for name, share in shares.items() for task in share.active & standing_by[name]
    }


@given(partitions, st.integers(1, 4), st.integers(0, 1))
def test_a_learner_that_never_catches_up_stops_nobody(
    partitions: list[int], workers: int, standbys: int
) -> None:
    world = settled(partitions, workers, Rules(standbys=standbys))
    before, moves = world.owned(), world.moves
    slow = world.join()
    for _ in range(6):
        world.round()
        for worker in world.workers.values():
            world.hear(worker)
            world.open(worker)
            if worker is not slow:
                world.follow(worker, FAR)
        world.run(2_000)
        world.follow(slow, 100)
    assert world.owned() == before | {slow.name: frozenset()}
    assert world.moves == moves


def test_a_last_commit_larger_than_any_lag_does_not_send_a_task_back() -> None:
    world = settled([4], 1, Rules(acceptable_recovery_lag=10))
    owner, learner = next(iter(world.workers.values())), world.join()
    world.round()
    for worker in (owner, learner):
        world.hear(worker)
    world.follow(learner, FAR)
    promised = world.round()[learner.name].promoted
    for worker in (owner, learner):
        world.hear(worker)
    world.close(owner)
    assert all(world.lag(learner, task) > 10 for task in promised)
    assert promised <= world.round()[learner.name].active


def test_a_revoked_task_comes_back_when_the_promoted_member_dies() -> None:
    world = settled([4], 1, Rules())
    owner, learner = next(iter(world.workers.values())), world.join()
    world.round()
    world.hear(owner)
    world.hear(learner)
    world.follow(learner, FAR)
    promised = world.round()[learner.name].promoted
    assert promised
    world.hear(owner)
    world.crash(learner)
    assert promised <= world.round()[owner.name].active


def test_a_member_that_comes_back_to_its_disk_learns_nothing() -> None:
    world = settled([12, 6], 3, Rules(standbys=1))
    for worker in sorted(world.workers.values(), key=lambda worker: worker.name):
        count = len(worker.holdings.owned)
        back = world.join(world.leave(worker))
        world.settle()
        assert len(back.holdings.owned) == count
        assert back.learned == 0
    world.check_settled()


def test_a_member_that_was_thrown_out_lets_go_before_it_joins_again() -> None:
    world = settled([4], 2, Rules())
    zombie = next(iter(world.workers.values()))
    world.throw_out(zombie)
    world.settle()
    assert zombie.holdings.owned, "it does not know"
    world.wake(zombie)
    assert zombie.holdings.owned == frozenset()
    world.settle()
    world.check_settled()


def test_new_partitions_run_in_the_next_round() -> None:
    world = settled([3, 2], 2, Rules())
    world.grow(0, 7)
    shares = world.round()
    assert set(world.tasks) == {task for share in shares.values() for task in share.active}
    world.settle()
    world.check_settled()


def test_a_topic_that_cannot_be_seen_stops_nobody() -> None:
    world = settled([3, 2], 2, Rules(standbys=1))
    before = world.owned()
    world.partitions.clear()
    world.settle()
    assert world.owned() == before


def test_more_workers_than_tasks() -> None:
    world = settled([2, 1], 5, Rules(standbys=1))
    assert sorted(len(owned) for owned in world.owned().values()) == [0, 0, 1, 1, 1]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_a_new_group_is_even_by_hop_and_in_all(first: int, second: int, workers: int) -> None:
    world = World([first, second], Rules())
    for _ in range(workers):
        world.join()
    world.settle()
    assert world.rounds == 1, "nobody owned anything, so one round is enough"
    world.check_settled()


def test_tasks_go_by_the_consumers_of_a_host() -> None:
    world = World([6, 6], Rules())
    world.join(capacity=2)
    small = world.join()
    world.settle()
    assert len(small.holdings.owned) == 4


def test_workers_of_one_host_hand_over_without_learning() -> None:
    world = settled([4], 1, Rules())
    (first,) = world.workers.values()
    learned = world.learned
    second = world.join(first.folder)
    world.settle()
    assert len(second.holdings.owned) == len(first.holdings.owned) == 2
    assert world.learned == learned


def test_a_copy_counts_for_each_worker_of_its_host() -> None:
    world = settled([2, 2], 1, Rules(max_warmup_replicas=1))
    (first,) = world.workers.values()
    second = world.join(first.folder)
    world.round()
    learner = world.join()
    world.round()
    for worker in (second, learner):
        world.hear(worker)
    world.round()
    world.follow(learner, 10_000_000)
    assert learner.tasks_in(State.CAUGHT_UP)
    # The share of the one beside it says that it takes over, behind records that both lack.
    world.join(learner.folder)
    world.run(50_000)
    world.settle()
    world.check_settled()


def test_a_join_takes_two_rounds_for_each_batch_of_learners() -> None:
    world = settled([12], 2, Rules(max_warmup_replicas=2))
    rounds = world.rounds
    joined = world.join()
    world.settle()
    assert len(joined.holdings.owned) == 4
    # It joins and learns two; these are promoted; it runs them and learns two more; and so on.
    assert world.rounds - rounds == 1 + 2 * 2
