"""Copies, wherever they are: enough of them, and none given up before another is as good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.group.member import TaskId
from headrace.services.group.standbys import Hosts, keep_copies

NAMES = "vwxyz"
TASKS = [TaskId(0, partition) for partition in range(5)]
some_hosts = st.frozensets(st.sampled_from(NAMES))


def by_task(
    values: st.SearchStrategy[frozenset[str]],
) -> st.SearchStrategy[dict[TaskId, frozenset[str]]]:
    """Something for each task."""
    return st.fixed_dictionaries(dict.fromkeys(TASKS, values))


copies = st.fixed_dictionaries(
    dict.fromkeys(TASKS, st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0, 5, 9])))
)
hosts = st.builds(
    Hosts,
    capacities=st.fixed_dictionaries(
        {0: st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), min_size=1)}
    ),
    copies=copies,
    following=by_task(some_hosts),
    running=by_task(st.sampled_from(NAMES).map(lambda name: frozenset({name}))),
)


@given(hosts, st.integers(0, 3))
def test_there_are_as_many_copies_as_hosts_allow(hosts: Hosts, count: int) -> None:
    kept = keep_copies(TASKS, count, hosts)
    for task in TASKS if count else []:
        eligible = hosts.capacities[0].keys() - hosts.running[task]
        assert set(kept[task]) <= eligible
        assert len(kept[task]) == len(set(kept[task]))
        assert min(count, len(eligible)) <= len(kept[task]) <= 2 * count


@given(hosts, st.integers(1, 3))
def test_being_even_costs_no_copy_that_has_caught_up(hosts: Hosts, count: int) -> None:
    kept = keep_copies(TASKS, count, hosts)
    for task in TASKS:
        eligible = hosts.capacities[0].keys() - hosts.running[task]
        good = {host for host, behind in hosts.copies[task].items() if behind == 0} & eligible
        followed = good & hosts.following[task]
        assert len(good.intersection(kept[task])) >= min(count, len(followed))


def test_new_copies_go_to_the_least_loaded() -> None:
    running = {task: frozenset({"x"}) for task in TASKS}
    hosts = Hosts({0: {"x": 1, "y": 1, "z": 1}}, {task: {} for task in TASKS}, {}, running)
    kept = keep_copies(TASKS, 1, hosts)
    assert [kept[task] for task in TASKS] == [["y"], ["z"], ["y"], ["z"], ["y"]]


def test_a_copy_that_moves_is_kept_until_the_new_one_has_caught_up() -> None:
    running = {task: frozenset({"x"}) for task in TASKS}
    followed = dict.fromkeys(TASKS, frozenset({"y"}))
    capacities = {0: {"x": 1, "y": 1, "z": 1}}
    before = Hosts(capacities, {task: {"y": 0} for task in TASKS}, followed, running)
    kept = keep_copies(TASKS, 1, before)
    moving = [task for task in TASKS if kept[task] == ["z", "y"]]
    assert len(moving) == 2
    after = {task: {"y": 0} | ({"z": 0} if task in moving else {}) for task in TASKS}
    following = {task: frozenset(after[task]) for task in TASKS}
    kept = keep_copies(TASKS, 1, Hosts(capacities, after, following, running))
    assert sorted(kept.values()) == [["y"], ["y"], ["y"], ["z"], ["z"]]
