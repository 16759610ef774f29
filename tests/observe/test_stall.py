"""The watchdog finds what is stuck, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.observe.snapshot import TaskSnapshot, WorkerSnapshot
from headrace.services.observe.stall import UNSEEN_S_MAX, Phase, Stall, Watched, stalls, watch
from tests.observe.examples import task, worker

TIMEOUT_S = 60.0


def looked_at(*snapshots: WorkerSnapshot) -> Watched:
    watched = Watched()
    for snapshot in snapshots:
        watched = watch(watched, snapshot)
    return watched


def after(seconds: int, shown: TaskSnapshot, **fields: Any) -> tuple[Stall, ...]:
    """Return the stalls of a task that looks the same every second."""
    looks = [worker(shown, taken_at_s=float(at_s), **fields) for at_s in range(seconds + 1)]
    return stalls(looked_at(*looks), TIMEOUT_S)


STUCK: dict[Phase, TaskSnapshot] = {
    "fetching": task(fetched=100, end=250, readable_end=200),
    "processing": task(position=100, fetched=140, end=140, readable_end=140, waiting_records=40),
    "committing": task(committed=60, uncommitted_records=40),
    "restoring": task(state="restoring", restored_records=7, restore_remaining=9),
    "closing": task(state="closing"),
}
WAITS = {
    "fetching": "it could be read up to offset 200, and is at 100",
    "processing": "40 fetched records wait, from offset 100 on",
    "committing": "the results of 40 records cannot be read before",
    "restoring": "none of its records is processed before its state is restored",
    "closing": "no other worker can take it over before",
}


@pytest.mark.parametrize("phase", STUCK)
def test_a_task_that_does_not_move_is_stuck(phase: Phase) -> None:
    (stall,) = after(60, STUCK[phase])
    assert stall.place.phase == phase
    assert stall.seconds == 60
    assert stall.sentence == (
        f"partition 3 of `clicks.raw` has not moved for 60 s while {phase}: {WAITS[phase]}"
    )


@pytest.mark.parametrize("phase", STUCK)
def test_it_takes_its_time(phase: Phase) -> None:
    assert after(59, STUCK[phase]) == ()


MOVES = {
    "fetching": "fetched",
    "processing": "position",
    "committing": "committed",
    "restoring": "restored_records",
    "closing": "committed",
}


@pytest.mark.parametrize("phase", STUCK)
def test_a_task_that_moves_now_and_then_is_not_stuck(phase: Phase) -> None:
    shown, moving = STUCK[phase], MOVES[phase]
    start = getattr(shown, moving)
    looks = [
        worker(replace(shown, **{moving: start + at_s // 50}), taken_at_s=float(at_s))
        for at_s in range(200)
    ]
    assert stalls(looked_at(*looks), TIMEOUT_S) == ()


@pytest.mark.parametrize(
    "idle",
    [
        task(),
        task(end=250),  # a transaction of the producer is open: nobody can read further
        task(position=99),  # a marker of a transaction, and nothing behind it
        task(committed=90),  # the same, uncommitted
        task(end=None, readable_end=None),  # nobody knows
        task(waiting_records=5, awaits_schema=True),  # a registry is away
        # So much waits for the registry by now that no more is fetched.
        task(waiting_records=5, awaits_schema=True, end=250, readable_end=200),
        # A record that was held since an earlier life needs a schema.
        task(state="closing", awaits_schema=True),
    ],
    ids=[
        "quiet",
        "open transaction",
        "marker",
        "uncommitted marker",
        "unknown end",
        "registry away",
        "registry away and backlog",
        "registry away and held record",
    ],
)
def test_where_nothing_is_to_be_done_nothing_is_stuck(idle: TaskSnapshot) -> None:
    assert after(1_000, idle) == ()


def test_a_task_that_runs_must_get_a_position() -> None:
    (stall,) = after(60, task(position=None, fetched=None))
    assert stall.place.phase == "fetching"


def test_no_record_is_fetched_for_a_task_that_does_not_run() -> None:
    closing = task(state="closing", fetched=100, readable_end=200)
    assert {stall.place.phase for stall in after(60, closing)} == {"closing"}


def test_a_quiet_topic_that_wakes_up_has_its_whole_time() -> None:
    quiet = [worker(task(), taken_at_s=float(at_s)) for at_s in range(500)]
    awake = [worker(task(end=200, readable_end=200), taken_at_s=500.0 + at_s) for at_s in range(60)]
    assert stalls(looked_at(*quiet, *awake), TIMEOUT_S) == ()


def test_partitions_are_set_apart_and_the_longest_is_told_first() -> None:
    looks = [
        worker(
            task(1, uncommitted_records=int(at_s >= 20)),
            task(2, uncommitted_records=1),
            task(3, uncommitted_records=1, committed=at_s),
            taken_at_s=float(at_s),
        )
        for at_s in range(101)
    ]
    found = stalls(looked_at(*looks), TIMEOUT_S)
    assert [(stall.place.partition, stall.seconds) for stall in found] == [(2, 100), (1, 80)]


def test_two_hops_over_the_same_partition_number_are_set_apart() -> None:
    other = task(hop="by-id", topic="clicks-by-id-repartition", uncommitted_records=5)
    looks = [
        worker(task(committed=at_s, uncommitted_records=5), other, taken_at_s=float(at_s))
        for at_s in range(61)
    ]
    (stall,) = stalls(looked_at(*looks), TIMEOUT_S)
    assert stall.place.hop == "by-id"


def test_a_commit_that_fails_again_and_again_is_stuck() -> None:
    """The task begins anew each time: for a moment there is nothing to commit."""
    looks = [
        worker(task(committed=50, uncommitted_records=9 * (at_s % 12 < 2)), taken_at_s=float(at_s))
        for at_s in range(62)
    ]
    (stall,) = stalls(looked_at(*looks), TIMEOUT_S)
    assert (stall.place.phase, stall.seconds) == ("committing", 61)


def test_a_task_with_no_more_to_commit_is_not_stuck() -> None:
    busy = [worker(task(uncommitted_records=9), taken_at_s=float(at_s)) for at_s in range(61)]
    gone = worker(task(), taken_at_s=61.0)
    assert stalls(looked_at(*busy), TIMEOUT_S) != ()
    assert stalls(looked_at(*busy, gone), TIMEOUT_S) == ()
    assert stalls(looked_at(*busy, replace(gone, tasks=())), TIMEOUT_S) == ()


def test_the_same_to_be_committed_much_later_begins_anew() -> None:
    once = worker(task(uncommitted_records=9), taken_at_s=0.0)
    idle = [worker(task(), taken_at_s=float(at_s)) for at_s in range(1, 100)]
    again = worker(task(uncommitted_records=9), taken_at_s=100.0)
    assert stalls(looked_at(once, *idle, again), TIMEOUT_S) == ()


def test_a_process_that_was_stopped_was_not_stuck() -> None:
    """SIGSTOP, or a machine that slept: the clock went on, and nobody could move."""
    shown = task(uncommitted_records=9)
    before, behind = worker(shown, taken_at_s=0.0), worker(shown, taken_at_s=3_600.0)
    watched = looked_at(before, behind)
    assert stalls(watched, TIMEOUT_S) == ()
    assert stalls(watched, UNSEEN_S_MAX) != ()


def test_a_group_that_does_not_answer() -> None:
    (stall,) = after(75, task(), heartbeat_at_s=0.0)
    assert stall.place.partition is None
    assert stall.sentence == (
        "the group has not answered for 75 s: the others may have taken over its partitions"
    )
    answered = [
        worker(task(), taken_at_s=float(at_s), heartbeat_at_s=at_s - 0.5) for at_s in range(200)
    ]
    assert stalls(looked_at(*answered), TIMEOUT_S) == ()


TASKS = st.builds(
    task,
    st.integers(0, 1),
    state=st.sampled_from(["restoring", "running", "closing"]),
    position=st.integers(0, 2),
    fetched=st.integers(0, 2),
    committed=st.integers(0, 2),
    readable_end=st.integers(0, 2),
    waiting_records=st.integers(0, 1),
    uncommitted_records=st.integers(0, 1),
)


@given(st.lists(st.tuples(st.floats(0, 4), TASKS), max_size=40))
def test_no_task_is_stuck_for_longer_than_it_was_watched(
    steps: list[tuple[float, TaskSnapshot]],
) -> None:
    watched, at_s = Watched(), 0.0
    started_s: float | None = None
    for passed_s, shown in steps:
        at_s += passed_s
        started_s = at_s if started_s is None else started_s
        watched = watch(watched, worker(shown, taken_at_s=at_s))
        for stall in stalls(watched, 0.0):
            assert stall.seconds <= at_s - started_s + 1e-6
            assert stall.place.partition == shown.partition
