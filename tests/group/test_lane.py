"""Lanes are walked through all that may happen, and each rule is broken once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace.services.group.lane import Lane, Stage
from tests.group import lanes
from tests.group.lane_broker import Broker, Row
from tests.group.lanes import Instance, World

NAMES = ("a", "b", "c")
WALKS = 300
which = st.integers(0, 1_000)


class Lanes(RuleBasedStateMachine):
    """Instances that are killed, sleep and come back, until all comes to rest."""

    world: World

    @initialize(partitions=st.integers(1, 5), records=st.integers(1, 8), lanes=st.integers(1, 2))
    def begin(self, partitions: int, records: int, lanes: int) -> None:
        """One runs everything."""
        self.world = World(partitions, records, lanes)
        self.world.start("a")
        self.world.assign("a")
        self.world.instances["a"].hear()

    def _some(self, number: int) -> Instance:
        names = sorted(self.world.instances)
        return self.world.instances[names[number % len(names)]]

    def _runs(self) -> bool:
        return bool(self.world.instances)

    @precondition(_runs)
    @rule(number=which, choices=st.lists(which, min_size=1, max_size=12))
    def step(self, number: int, choices: list[int]) -> None:
        """One does some of what it can do."""
        instance = self._some(number)
        for choice in choices:
            if steps := list(instance.steps()):
                instance.do(*steps[choice % len(steps)])

    @precondition(_runs)
    @rule(number=which)
    def hear(self, number: int) -> None:
        """One hears what the group has decided."""
        self._some(number).hear()

    @precondition(_runs)
    @rule(number=which)
    def assign(self, number: int) -> None:
        """One of them gets the partitions that nobody has."""
        self.world.assign(self._some(number).name)

    @precondition(_runs)
    @rule(number=which, partition=which)
    def give_up(self, number: int, partition: int) -> None:
        """One is told to give up a partition."""
        tasks = self._some(number).tasks
        if tasks:
            self._some(number).give_up(sorted(tasks)[partition % len(tasks)])

    @precondition(_runs)
    @rule(number=which, partition=which)
    def fail(self, number: int, partition: int) -> None:
        """One partition fails."""
        tasks = self._some(number).tasks
        if tasks:
            self._some(number).fail(sorted(tasks)[partition % len(tasks)])

    @precondition(_runs)
    @rule(number=which)
    def kill(self, number: int) -> None:
        """One dies."""
        self.world.kill(self._some(number).name)

    @rule(name=st.sampled_from(NAMES))
    def start(self, name: str) -> None:
        """One begins, or begins again."""
        if name not in self.world.instances:
            self.world.start(name)

    @rule(number=which)
    def throw_out(self, number: int) -> None:
        """The group counts one out, dead or alive."""
        members = sorted(self.world.broker.owned)
        if members:
            self.world.throw_out(members[number % len(members)])

    @rule(number=which)
    def expire(self, number: int) -> None:
        """A transaction is open for too long."""
        lanes = sorted(self.world.broker.producers)
        if lanes:
            self.world.broker.expire(lanes[number % len(lanes)])

    @rule(number=which)
    def mark(self, number: int) -> None:
        """Readers see a transaction that was committed."""
        if unmarked := self.world.broker.unmarked:
            self.world.broker.mark(unmarked[number % len(unmarked)])

    @invariant()
    def check(self) -> None:
        """See that all holds."""
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_ended()

    def teardown(self) -> None:
        """All comes to rest."""
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check()


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    """Leave it out."""


def _revived_in_its_old_epoch(self: Instance, number: int) -> None:
    self.lanes[number].revived()


def _closed_for_nobody(self: Lane[Any, Any]) -> bool:
    return self.stage in {Stage.RESTING, Stage.OPEN, Stage.CLOSING, Stage.ENDING}


def _unnamed(broker: Broker, *where: Any) -> None:
    *before, row = where
    _LOG(broker, *before, Row(row.position, None))


_LOG: Any = Broker.log

MUTATIONS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "the group is not asked": (Broker, "check", _nothing),
    "nobody says in which lane it is": (Broker, "log", _unnamed),
    "nobody ends another's lane": (lanes, "must_end", _never),
    "who fails leaves what it sent": (Lane, "breaks_without", _never),
    "a broken lane goes on in its epoch": (Instance, "_revive", _revived_in_its_old_epoch),
    "one begins while the others end": (Lane, "may_begin", _closed_for_nobody),
    "nobody waits for who died unnamed": (Broker, "hides", _never),
}


class Walk:
    """Some way through all that may happen, the same for the same seed."""

    ACTS = "step " * 40 + "hear " * 6 + "assign " * 3 + "start give_up fail kill throw_out mark"

    def __init__(self, seed: int) -> None:
        """One instance runs everything."""
        self._luck = Random(seed)
        self._lanes = Lanes()
        self._lanes.begin(self._luck.randint(1, 3), 20, self._luck.randint(1, 2))

    def run(self) -> None:
        """Go on until something does not hold, or all has come to rest."""
        for _ in range(200):
            self._act(self._luck.choice(self.ACTS.split()))
            self._lanes.check()
        self._lanes.teardown()

    def _act(self, act: str) -> None:
        machine, number = self._lanes, self._luck.randrange(1_000)
        if act == "start":
            machine.start(self._luck.choice(NAMES))
        elif act in {"throw_out", "mark"}:
            getattr(machine, act)(number)
        elif machine.world.instances:
            more: dict[str, Any] = {
                "step": [self._luck.randrange(1_000) for _ in range(3)],
                "give_up": self._luck.randrange(1_000),
                "fail": self._luck.randrange(1_000),
            }
            getattr(machine, act)(number, *([more[act]] if act in more else []))


def test_walks_end_well() -> None:
    for seed in range(WALKS):
        Walk(seed).run()


def test_who_was_thrown_out_commits_nothing() -> None:
    world = World(1, 5, 1)
    for name in ("a", "b"):
        world.start(name)
    asleep, awake = world.instances["a"], world.instances["b"]
    world.assign("a")
    asleep.hear()
    asleep.do("read", 0)
    world.throw_out(asleep.member)
    world.assign("b")
    awake.hear()
    run(awake, *COMMIT)
    run(asleep, *COMMIT)
    run(awake, *COMMIT)
    world.settle()
    world.check()


COMMIT = ("clean", "done", "end", "end")


def run(instance: Instance, *wanted: str) -> None:
    """Take the next step again and again, and at last these; as far as it can."""
    for last in wanted:
        for _ in range(20):
            for transaction in [*instance.broker.unmarked]:
                instance.broker.mark(transaction)
            steps = dict(instance.steps())
            if last in steps:
                instance.do(last, steps[last])
                break
            if not steps:
                return
            instance.do(*next(iter(steps.items())))


def check_all() -> None:
    """All that must hold."""
    test_who_was_thrown_out_commits_nothing()
    test_walks_end_well()


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_each_rule_is_needed(
    monkeypatch: pytest.MonkeyPatch, mutation: tuple[object, str, Callable[..., object]]
) -> None:
    monkeypatch.setattr(*mutation)
    with pytest.raises(AssertionError):
        check_all()
