"""Every rule, broken once: whoever checks what must hold must notice.

A mutation is a small change of one function, such as somebody could make in good faith. It names
the check that must fail because of it; nothing is shrunk, since any failure will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from math import floor
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from headrace.services.group import assign, holdings, places, standbys
from headrace.services.group.claims import Claims, read_claims
from headrace.services.group.holdings import Holdings, Step
from headrace.services.group.learner import Action, Event, State, step
from headrace.services.group.member import AT_ONCE_MS, NEVER_MS, Member, Rules, TaskId
from headrace.services.group.places import Seats
from headrace.services.group.quotas import Stakes, find_quotas
from tests.group import claims, test_assign, test_simulation, test_standbys
from tests.group.machine import Group

LOOK = settings(
    max_examples=60,
    stateful_step_count=30,
    phases=[Phase.generate],
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


def anything_may_happen() -> None:
    """The machine, until it fails."""
    run_state_machine_as_test(Group, settings=LOOK)


def any_claims() -> None:
    """One round, over any claims."""
    LOOK(given(claims.groups(), claims.rules)(claims.check_any_claims))()


def property_of(test: Any) -> Callable[[], None]:
    """A test with `given`, without its own settings."""
    return LOOK(test)  # type: ignore[no-any-return]


class Mutation(NamedTuple):
    """One rule, broken."""

    where: object
    name: str
    broken: Any
    noticed_by: Callable[[], None]


def named(mutation: Mutation) -> str:
    """Return the broken rule's name, and the test's that notices."""
    broken = getattr(mutation.broken, "__name__", "too_few")
    return f"{mutation.name} {broken} {mutation.noticed_by.__name__}"


def hand_over_at_once(group: assign.Group, goals: Mapping[TaskId, str]) -> assign.Moves:
    """The new owner begins in the round in which the old one is told to stop."""
    moves = decide(group, goals)
    return assign.Moves(moves.runs | moves.promoted, {}, moves.waiting)


def give_to_the_goal(group: assign.Group, goals: Mapping[TaskId, str]) -> assign.Moves:
    """Learners are not waited for."""
    moves = decide(group, goals)
    promoted = {task: goals[task] for task in moves.waiting if task in group.claims.owners}
    runs = {task: name for task, name in moves.runs.items() if task not in promoted}
    return assign.Moves(runs, moves.promoted | promoted, {})


def everybody_is_caught_up(*_args: object) -> bool:
    """Lags are not looked at."""
    return True


def only_the_latest_claims(members: Mapping[str, Member]) -> Claims:
    """A member that missed the last round has nothing any more."""
    latest = max(member.generation for member in members.values())
    return read_claims({n: m for n, m in members.items() if m.generation == latest})


def the_oldest_claims(members: Mapping[str, Member]) -> Claims:
    """The lower generation counts."""
    return read_claims({n: replace(m, generation=-m.generation) for n, m in members.items()})


def claims_without_generation(members: Mapping[str, Member]) -> Claims:
    """A stale claim is as good as the owner's."""
    return read_claims({n: replace(m, generation=0) for n, m in members.items()})


def the_first_claims(members: Mapping[str, Member]) -> Claims:
    """Of two claims of one generation, one is believed."""
    believed = read_claims(members)
    first = {
        task: min(name for name in members if task in members[name].owned)
        for task in believed.contested
    }
    return Claims(believed.owners | first, frozenset())


def whoever_is_due(_group: assign.Group, _task: TaskId, goal: str, _load: object) -> str:
    """An orphan goes where it should be in the end, and not where it can run now."""
    return goal


def nobody_hurries(*_args: object, **_named: object) -> int:
    """Everybody waits for a heartbeat."""
    return NEVER_MS


def everybody_probes(
    _group: object, moves: assign.Moves, rules: Rules, *, looks_again: bool
) -> int:
    """All look again, not one."""
    del looks_again
    if len(moves.runs) < len(claims.TASKS):
        return AT_ONCE_MS
    return rules.probing_interval_ms if moves.waiting else NEVER_MS


def all_learn(_group: object, waiting: Mapping[TaskId, str], _most: int) -> dict[TaskId, str]:
    """No bound on learners."""
    return dict(waiting)


def nobody_learns(*_args: object) -> dict[TaskId, str]:
    """No learners at all."""
    return {}


def nobody_is_sticky(*_args: object) -> Iterator[tuple[TaskId, str]]:
    """The first step is left out."""
    return iter(())


def quotas_without_owners(stakes: Mapping[int, Stakes]) -> dict[int, dict[str, int]]:
    """The tasks that rounding leaves over go by name."""
    return find_quotas(
        {hop: replace(of_hop, owned=type(of_hop.owned)()) for hop, of_hop in stakes.items()}
    )


def quotas_hop_by_hop(stakes: Mapping[int, Stakes]) -> dict[int, dict[str, int]]:
    """No hop looks at the others."""
    return {hop: find_quotas({hop: of_hop})[hop] for hop, of_hop in stakes.items()}


def quotas_for_one(stakes: Mapping[int, Stakes]) -> dict[int, dict[str, int]]:
    """Rounding leaves everything to the first seat."""
    quotas = {
        hop: {seat: floor(share) for seat, share in of_hop.shares().items()}
        for hop, of_hop in stakes.items()
    }
    for hop, quota in quotas.items():
        quota[min(quota)] += stakes[hop].tasks - sum(quota.values())
    return quotas


_turns = count()


def goals_that_turn(group: assign.Group) -> dict[TaskId, str]:
    """Another member's turn in every round, as chance or a clock would have it."""
    names = sorted(group.members)
    turn = next(_turns)
    return {task: names[(place + turn) % len(names)] for place, task in enumerate(group.tasks)}


def place_without_capacity(tasks: Iterable[TaskId], seats: Seats) -> dict[TaskId, str]:
    """A host with two consumers counts as one."""
    capacities = {hop: dict.fromkeys(by, 1) for hop, by in seats.capacities.items()}
    return place(tasks, replace(seats, capacities=capacities))


def owner_goes_on(state: State, event: Event) -> tuple[State, Action | None]:
    """No member hears that a task was taken from it."""
    if (state, event) == (State.ACTIVE, Event.TOLD_NOTHING):
        return state, None
    return step(state, event)


def learner_is_silent(state: State, event: Event) -> tuple[State, Action | None]:
    """A member that has caught up asks for nothing."""
    after, action = step(state, event)
    return after, None if action is Action.ASK else action


def nothing_is_lost(_holdings: Holdings) -> list[Step]:
    """A member that is thrown out keeps its tasks."""
    return []


def no_stand_ins(*_args: object) -> list[str]:
    """A copy is given up for one that has not caught up."""
    return []


def copies_anywhere(task: TaskId, hosts: standbys.Hosts) -> Iterator[str]:
    """A copy beside the owner, on its own host."""
    return iter(hosts.capacities[task.hop])


decide, place = assign.decide, places.place
joining = property_of(test_simulation.test_a_member_that_joins_gets_tasks_and_no_other_does)
new_group = property_of(test_simulation.test_a_new_group_is_even_by_hop_and_in_all)
kept_copies = property_of(test_standbys.test_being_even_costs_no_copy_that_has_caught_up)
large_commit = test_simulation.test_a_last_commit_larger_than_any_lag_does_not_send_a_task_back
orphan = test_assign.test_an_orphan_runs_at_once_where_a_copy_is_and_moves_later
zombie = test_simulation.test_a_member_that_was_thrown_out_lets_go_before_it_joins_again
MUTATIONS = [
    Mutation(assign, "decide", hand_over_at_once, anything_may_happen),
    Mutation(assign, "decide", hand_over_at_once, any_claims),
    Mutation(assign, "decide", give_to_the_goal, anything_may_happen),
    Mutation(assign, "decide", give_to_the_goal, any_claims),
    Mutation(assign.Group, "is_caught_up", everybody_is_caught_up, anything_may_happen),
    Mutation(assign, "read_claims", only_the_latest_claims, anything_may_happen),
    Mutation(assign, "read_claims", only_the_latest_claims, any_claims),
    Mutation(assign, "read_claims", the_oldest_claims, any_claims),
    Mutation(assign, "read_claims", claims_without_generation, any_claims),
    Mutation(assign, "read_claims", the_first_claims, any_claims),
    Mutation(assign, "take_over", whoever_is_due, orphan),
    Mutation(assign, "next_rebalance_ms", nobody_hurries, anything_may_happen),
    Mutation(assign, "next_rebalance_ms", everybody_probes, any_claims),
    Mutation(assign, "admit", all_learn, anything_may_happen),
    Mutation(assign, "admit", nobody_learns, anything_may_happen),
    Mutation(assign, "find_goals", goals_that_turn, anything_may_happen),
    Mutation(assign, "place", place_without_capacity, anything_may_happen),
    Mutation(places, "previous_owners", nobody_is_sticky, joining),
    Mutation(places, "find_quotas", quotas_without_owners, joining),
    Mutation(places, "find_quotas", quotas_hop_by_hop, new_group),
    Mutation(places, "find_quotas", quotas_for_one, anything_may_happen),
    Mutation(holdings, "step", owner_goes_on, anything_may_happen),
    Mutation(holdings, "step", learner_is_silent, anything_may_happen),
    Mutation(holdings, "OWNING", {State.ACTIVE}, anything_may_happen),
    Mutation(holdings, "READY", frozenset(), large_commit),
    Mutation(Holdings, "thrown_out", nothing_is_lost, zombie),
    Mutation(standbys, "_stand_ins", no_stand_ins, kept_copies),
    Mutation(standbys, "_eligible", copies_anywhere, any_claims),
]


@pytest.mark.parametrize(
    "mutation", [pytest.param(mutation, id=named(mutation)) for mutation in MUTATIONS]
)
def test_a_broken_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation.where, mutation.name, mutation.broken)
    with pytest.raises(AssertionError):
        mutation.noticed_by()
