"""A group to which everything happens that can, at random, and in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.services.group.member import Rules
from tests.group.simulation import Folder, Worker, World, some

WORKERS_MAX = 6
which = st.integers(0, WORKERS_MAX - 1)
"""Which of those that there are."""


class Group(RuleBasedStateMachine):
    """A world in which everything goes wrong, and which comes to rest in the end."""

    world: World

    @initialize(
        partitions=st.lists(st.integers(1, 8), min_size=1, max_size=3),
        standbys=st.integers(0, 2),
        warmups=st.integers(1, 4),
    )
    def begin(self, partitions: list[int], standbys: int, warmups: int) -> None:
        """One worker runs everything."""
        self.world = World(partitions, Rules(standbys=standbys, max_warmup_replicas=warmups))
        self.folders: list[Folder] = []
        self.world.join()
        self.world.settle()

    def _one(self, number: int) -> Worker:
        return some(self.world.workers.values(), number)

    def _has_room(self) -> bool:
        return len(self.world.workers) < WORKERS_MAX

    def _has_two(self) -> bool:
        return len(self.world.workers) > 1

    @precondition(_has_room)
    @rule(capacity=st.sampled_from([1, 1, 1, 2]))
    def join(self, capacity: int) -> None:
        """A worker on a new host."""
        self.world.join(capacity=capacity)

    @precondition(_has_room)
    @rule(number=which)
    def join_on_a_host(self, number: int) -> None:
        """A second worker on a host."""
        self.world.join(self._one(number).folder)

    @precondition(lambda self: self.folders and self._has_room())
    @rule()
    def come_back(self) -> None:
        """A worker starts on a disk that another one left."""
        self.world.join(self.folders.pop())

    @precondition(_has_two)
    @rule(number=which)
    def leave(self, number: int) -> None:
        """A worker stops."""
        self._keep(self.world.leave(self._one(number)))

    @precondition(_has_two)
    @rule(number=which)
    def crash(self, number: int) -> None:
        """A worker dies."""
        self._keep(self.world.crash(self._one(number)))

    def _keep(self, folder: Folder) -> None:
        if all(worker.folder is not folder for worker in self._everybody()):
            self.folders.append(folder)

    def _everybody(self) -> list[Worker]:
        return [*self.world.workers.values(), *self.world.zombies.values()]

    @precondition(_has_two)
    @rule(number=which, is_noticed=st.booleans())
    def throw_out(self, number: int, is_noticed: bool) -> None:  # noqa: FBT001 - drawn, not passed
        """A worker stands still, and the group goes on without it, at once or in a while."""
        self.world.throw_out(self._one(number))
        if is_noticed:
            self.world.round()
            for worker in self.world.workers.values():
                self.world.hear(worker)

    @precondition(lambda self: self.world.zombies and self._has_room())
    @rule(number=which)
    def wake(self, number: int) -> None:
        """It goes on, and hears what happened."""
        self.world.wake(some(self.world.zombies.values(), number))

    @rule()
    def round(self) -> None:
        """A rebalance; whoever has not heard of the last one has missed it."""
        self.world.round()

    @rule(number=which)
    def miss(self, number: int) -> None:
        """Everybody but one hears of a round, and then there is another one."""
        self.world.round()
        for worker in self.world.workers.values():
            if worker is not self._one(number):
                self.world.hear(worker)
        self.world.round()

    @rule(number=which)
    def hear(self, number: int) -> None:
        """A worker hears what it was told."""
        self.world.hear(self._one(number))

    @rule(number=which)
    def open(self, number: int) -> None:
        """Run the tasks that a worker took over."""
        self.world.open(self._one(number))

    @rule(number=which)
    def close(self, number: int) -> None:
        """Close the tasks that were taken from a worker."""
        self.world.close(self._one(number))

    @rule(records=st.sampled_from([1, 900, 50_000]))
    def run(self, records: int) -> None:
        """Records come in."""
        self.world.run(records)

    @rule(number=which, records=st.sampled_from([500, 60_000, 10_000_000]))
    def follow(self, number: int, records: int) -> None:
        """A worker reads some way into its changelogs."""
        self.world.follow(self._one(number), records)

    def teardown(self) -> None:
        """Everything that was begun comes to its end."""
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check_settled()
