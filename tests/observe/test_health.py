"""/live and /ready, as decisions."""

from __future__ import annotations

import pytest

from headrace.services.observe.health import Health, Watchdog, live, ready
from headrace.services.observe.snapshot import TaskSnapshot, WorkerSnapshot, WorkerState
from tests.observe.examples import task, worker

RUNNING = task(1)
RESTORING = task(2, state="restoring")
CLOSING = task(4, state="closing")


@pytest.mark.parametrize(
    ("state", "tasks", "expected"),
    [
        ("starting", (), Health(is_well=False, sentence="the worker is starting")),
        ("starting", (RUNNING,), Health(is_well=False, sentence="the worker is starting")),
        ("restoring", (), Health(is_well=False, sentence="state is being restored")),
        (
            "restoring",
            (RESTORING,),
            Health(is_well=False, sentence="state is being restored: clicks.raw/2"),
        ),
        ("running", (), Health(is_well=True, sentence="partitions that run: 0")),
        ("running", (RUNNING, CLOSING), Health(is_well=True, sentence="partitions that run: 1")),
        (
            "running",
            (RUNNING, RESTORING),
            Health(is_well=False, sentence="state is being restored: clicks.raw/2"),
        ),
        ("stopping", (RUNNING,), Health(is_well=False, sentence="the worker is stopping")),
        ("stopping", (RESTORING,), Health(is_well=False, sentence="the worker is stopping")),
    ],
)
def test_ready(state: WorkerState, tasks: tuple[TaskSnapshot, ...], expected: Health) -> None:
    assert ready(worker(*tasks, state=state)) == expected


class Worker:
    """One that shows what it is told to."""

    def __init__(self, shown: TaskSnapshot) -> None:
        self.shown = shown
        self.at_s = 0.0

    def snapshot(self) -> WorkerSnapshot:
        """How it looks now."""
        return worker(self.shown, taken_at_s=self.at_s)

    def wait(self, watchdog: Watchdog, seconds: int) -> None:
        """Seconds pass, each with a look."""
        for _ in range(seconds):
            self.at_s += 1
            watchdog.look()


def test_a_watchdog_barks_while_something_is_stuck() -> None:
    running = Worker(task(uncommitted_records=3))
    watchdog = Watchdog(running.snapshot, stall_timeout_s=10.0)
    running.wait(watchdog, 10)
    assert live(watchdog.look()) == Health(
        is_well=True, sentence="everything that is to be done moves"
    )
    running.wait(watchdog, 2)
    health = live(watchdog.look())
    assert not health.is_well
    assert health.sentence.startswith("partition 3 of `clicks.raw` has not moved for 11 s while")
    running.shown = task(committed=103)
    assert live(watchdog.look()).is_well


def test_looking_more_often_changes_nothing() -> None:
    """A prober asks whenever it likes; the runtime looks besides."""
    running = Worker(task(uncommitted_records=3))
    watchdog = Watchdog(running.snapshot, stall_timeout_s=10.0)
    for _ in range(1_000):
        watchdog.look()
    assert watchdog.look() == ()
    running.wait(watchdog, 9)
    assert watchdog.look() == ()
    running.wait(watchdog, 1)
    assert len(watchdog.look()) == 1
