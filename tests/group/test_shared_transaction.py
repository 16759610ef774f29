"""Shared producers are walked through all that may happen, and each rule is broken once."""

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

from headrace.services.group.shared_transaction import SharedTransaction, Stage
from tests.group import sharing
from tests.group.naive_broker import SHARED, Broker, Place, Row
from tests.group.sharing import Instance, Taking
from tests.group.sharing_world import World

NAMES = ("a", "b", "c")
WALKS = 200
_HALF = 0.5
which = st.integers(0, 1_000)


class Sharing(RuleBasedStateMachine):
    """Instances that are killed, sleep and come back, until all comes to rest."""

    world: World

    @initialize(
        partitions=st.integers(1, 5), records=st.integers(1, 8), producers=st.integers(1, 2)
    )
    def begin(self, partitions: int, records: int, producers: int) -> None:
        """One runs everything."""
        self.world = World(partitions, records, producers)
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
        producers = sorted(self.world.broker.producers)
        if producers:
            self.world.broker.expire(producers[number % len(producers)])

    @rule(place=which, hears=st.booleans())
    def forget(self, place: int, hears: bool) -> None:  # noqa: FBT001 (hypothesis names it)
        """A broker dies, and forgets how a transaction ended in a place."""
        places = sorted(self.world.broker.logs)
        self.world.forget(places[place % len(places)], hears=hears)

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
            self.world.check_settled()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    """Leave it out."""


def _revived_in_its_old_epoch(self: Instance, number: int) -> None:
    if self.epochs[number]:
        self.transactions[number].revived()
    else:
        _REVIVE(self, number)


def _closed_for_nobody(self: SharedTransaction[Any, Any]) -> bool:
    return self.stage in {Stage.RESTING, Stage.OPEN, Stage.CLOSING, Stage.ENDING}


def _unnamed(broker: Broker, name: str, epoch: int, place: Place, what: object) -> None:
    _WRITE(broker, name, epoch, place, Row(what.position, None) if isinstance(what, Row) else what)


def _looks_at_nothing(self: Instance, partition: int) -> None:
    self.tasks[partition].has_looked = True


def _asks_nobody(self: Instance, partition: int) -> None:
    self.tasks[partition].has_asked = True


def _where_it_is_over(*, is_over: bool, is_alone: bool) -> bool:
    return is_over or (is_alone and False)


def _where_it_is_alone(*, is_over: bool, is_alone: bool) -> bool:
    return is_alone or (is_over and False)


def _sweeps_when(*, is_given: bool) -> Callable[[Taking], None]:
    def sweep(self: Taking) -> None:
        if (self.epoch is not None) == is_given:
            _SWEEP(self)

    return sweep


def _asks_in_nobodys_name(self: Taking) -> None:
    self.epoch = self._broker.init(self.name, None)
    self.is_told = self.epoch is not None


_WRITE: Any = Broker.write
_SWEEP: Any = Taking.sweep
_REVIVE: Any = Instance._revive  # noqa: SLF001

MUTATIONS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "the group is not asked": (Broker, "check", _nothing),
    "nobody asks once more before it writes": (Instance, "_ask", _asks_nobody),
    "nobody says in which producer it is": (Broker, "write", _unnamed),
    "nobody ends another's producer": (sharing, "must_end", _never),
    "nobody looks for who has not said it": (Instance, "_look", _looks_at_nothing),
    "who is dead is waited for": (sharing, "must_end_stranger", _where_it_is_over),
    "what was forgotten stays open": (sharing, "must_end_stranger", _where_it_is_alone),
    "a new epoch comes before the ends of the one before": (
        Taking,
        "sweep",
        _sweeps_when(is_given=True),
    ),
    "what the new epoch tells is not ended": (Taking, "sweep", _sweeps_when(is_given=False)),
    "a new epoch is asked for by who knows of none": (Taking, "ask", _asks_in_nobodys_name),
    "who fails leaves what it sent": (SharedTransaction, "breaks_without", _never),
    "a broken producer goes on in its epoch": (Instance, "_revive", _revived_in_its_old_epoch),
    "one begins while the others end": (SharedTransaction, "may_begin", _closed_for_nobody),
    "nobody waits for what is to be readable": (Broker, "hides", _never),
}


class Walk:
    """Some way through all that may happen, the same for the same seed."""

    ACTS = (
        "step " * 40 + "hear " * 6 + "assign " * 3 + "start give_up fail kill throw_out mark forget"
    )

    def __init__(self, seed: int) -> None:
        """One instance runs everything."""
        self._luck = Random(seed)
        self._machine = Sharing()
        self._machine.begin(self._luck.randint(1, 3), 20, self._luck.randint(1, 2))

    def run(self) -> None:
        """Go on until something does not hold, or all has come to rest."""
        for _ in range(200):
            self._act(self._luck.choice(self.ACTS.split()))
            self._machine.check()
        self._machine.teardown()

    def _act(self, act: str) -> None:
        machine, number = self._machine, self._luck.randrange(1_000)
        if act == "start":
            machine.start(self._luck.choice(NAMES))
        elif act in {"throw_out", "mark"}:
            getattr(machine, act)(number)
        elif act == "forget":
            machine.forget(number, hears=self._luck.random() < _HALF)
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


def test_an_instance_that_was_thrown_out_commits_nothing() -> None:
    world = World(1, 5, 1)
    for name in ("a", "b"):
        world.start(name)
    asleep, awake = world.instances["a"], world.instances["b"]
    world.assign("a")
    asleep.hear()
    run(asleep, "ask")
    world.throw_out(asleep.member)
    world.assign("b")
    awake.hear()
    run(awake, *COMMIT)
    run(asleep, *COMMIT)
    run(awake, *COMMIT)
    world.settle()
    world.check_settled()


def two() -> tuple[World, Instance, Instance]:
    """A world in which one of two runs the only partition, and has committed once."""
    world = World(1, 5, 1)
    for name in ("a", "b"):
        world.start(name)
    one, other = world.instances["a"], world.instances["b"]
    world.assign("a")
    one.hear()
    run(one, *COMMIT)
    return world, one, other


def test_a_successor_stands_behind_nothing_of_an_instance_that_was_thrown_out() -> None:
    world, asleep, awake = two()
    world.throw_out(asleep.member)
    world.assign("b")
    awake.hear()
    run(awake, *COMMIT)
    asleep.do("clean", 0)
    world.check_ended()
    world.settle()
    world.check_settled()


def test_an_instance_that_was_thrown_out_names_nothing_behind_its_successor() -> None:
    world, asleep, awake = two()
    world.throw_out(asleep.member)
    asleep.lose_connections()
    world.assign("b")
    awake.hear()
    run(awake, "look")
    run(asleep, "look")
    run(awake, "open", "end", "end")
    run(asleep, "open")
    assert not world.broker.open_in(("changelog", 0))
    world.settle()
    world.check_settled()


@pytest.mark.parametrize("place", [SHARED, ("cleaned", 0)], ids=["shared", "its own"])
def test_a_successor_ends_what_was_forgotten_when_an_owner_left_in_peace(place: Place) -> None:
    world, leaves, _ = two()
    run(leaves, "clean")
    leaves.give_up(0)
    run(leaves, "leave", "end", "end")
    world.forget(place, hears=False)
    world.kill("a")
    for transaction in [*world.broker.unmarked]:
        world.broker.mark(transaction)
    assert world.broker.last_row(0) == Row(2, None)
    assert world.broker.open_in(place)
    world.settle()
    world.check_settled()


def test_a_successor_does_not_wait_for_an_owner_that_died_unnamed() -> None:
    world = World(1, 5, 1)
    world.start("a")
    world.assign("a")
    world.instances["a"].hear()
    run(world.instances["a"], "open")
    assert world.broker.hides(0)
    world.kill("a")
    world.settle()
    world.check_settled()


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
    test_an_instance_that_was_thrown_out_commits_nothing()
    test_a_successor_stands_behind_nothing_of_an_instance_that_was_thrown_out()
    test_an_instance_that_was_thrown_out_names_nothing_behind_its_successor()
    for place in (SHARED, ("cleaned", 0)):
        test_a_successor_ends_what_was_forgotten_when_an_owner_left_in_peace(place)
    test_a_successor_does_not_wait_for_an_owner_that_died_unnamed()
    test_walks_end_well()


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_each_rule_is_needed(
    monkeypatch: pytest.MonkeyPatch, mutation: tuple[object, str, Callable[..., object]]
) -> None:
    monkeypatch.setattr(*mutation)
    with pytest.raises(AssertionError):
        check_all()
