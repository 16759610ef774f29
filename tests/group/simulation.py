"""A group without a broker: workers, their disks, and whatever can go wrong between them.

Everything that members say and hear goes through the bytes that the wire carries. Kafka's promises
are kept: a round ends with one assignment for all who joined it; a member that does not hear of it
joins the next one with what it claimed before; a member that is thrown out cannot come back without
hearing so. Everything else may happen in any order, and what must hold is checked at every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from headrace.contracts.hops import Hop
from headrace.contracts.topics import changelog_topic
from headrace.services.group.holdings import Holdings, Step
from headrace.services.group.learner import READY, Action, State
from headrace.services.group.member import Rules, Share, TaskId
from headrace.services.group.round import Instance, describe, hear, lead

ROUNDS_MAX = 150
OWNERS = (State.ACTIVATING, State.ACTIVE, State.REVOKING)
TRICKLE, STRETCH = 300, 60_000
"""How many records come in, and how many a follower reads, between two rounds."""
QUIET_ROUNDS = 3
"""Until copies that were kept for others are given up, and one more."""


def hops_of(count: int) -> tuple[Hop, ...]:
    """So many hops."""
    names = ["state", *(f"by-id-{number}" for number in range(1, count))]
    return tuple(Hop(name, f"into.{name}", (), changelog_topic("p", name), None) for name in names)


@dataclass
class Folder:
    """A host's disk: how far each copy on it has read its changelog."""

    client: bytes
    positions: dict[TaskId, int] = field(default_factory=dict)


class Worker:
    """A member of the group, or one that the group has thrown out and that does not know it."""

    def __init__(self, name: str, folder: Folder, instance: Instance, holdings: Holdings) -> None:
        """It joins with the next round."""
        self.name = name
        self.folder = folder
        self.instance = instance
        self.holdings = holdings
        self.generation = -1
        self.assignment: tuple[int, bytes] | None = None
        """Generation and bytes of what it was told, and has not heard."""
        self.wants_to_join = True
        self.learned = 0
        """How often it began to learn a task."""

    def tasks_in(self, *states: State) -> list[TaskId]:
        """Return the tasks that are in one of these states at the worker."""
        holdings = self.holdings
        return sorted(task for task, state in holdings.states.items() if state in states)


class World:
    """A pipeline's tasks, and everybody who works on them."""

    def __init__(self, partitions: Sequence[int], rules: Rules) -> None:
        """Begin without workers; `partitions` is how many each hop has."""
        self.hops = hops_of(len(partitions))
        self.partitions = dict(zip((hop.topic for hop in self.hops), partitions, strict=True))
        self.rules = rules
        self.tasks = [
            TaskId(hop, number) for hop, count in enumerate(partitions) for number in range(count)
        ]
        self.ends = dict.fromkeys(self.tasks, 100_000)
        """Where each changelog ends."""
        self.workers: dict[str, Worker] = {}
        self.zombies: dict[str, Worker] = {}
        self.generation = 0
        self.rounds = 0
        self.moves = 0
        """How often a task was taken from somebody alive."""
        self._names = 0

    # Events of a group.

    def join(self, folder: Folder | None = None, capacity: int = 1) -> Worker:
        """A worker starts, on a new disk or on one that was used before."""
        self._names += 1
        if folder is None:
            folder = Folder(self._names.to_bytes(16, "big"))
        instance = Instance(folder.client, self.hops, capacity=capacity)
        name = f"m{self._names:03d}"
        worker = Worker(name, folder, instance, Holdings(self.rules.acceptable_recovery_lag))
        self.workers[name] = worker
        return worker

    def crash(self, worker: Worker) -> Folder:
        """It is gone, and the group knows."""
        del self.workers[worker.name]
        return worker.folder

    def leave(self, worker: Worker) -> Folder:
        """It commits, closes and goes."""
        for task in worker.tasks_in(*OWNERS):
            self._commit(worker, task)
        return self.crash(worker)

    def throw_out(self, worker: Worker) -> None:
        """The group goes on without it, and it does not know."""
        self.zombies[worker.name] = self.workers.pop(worker.name)

    def wake(self, zombie: Worker) -> None:
        """It hears that it was thrown out, and joins as a new member."""
        del self.zombies[zombie.name]
        self._do(zombie, zombie.holdings.thrown_out())
        self.close(zombie)
        self._names += 1
        zombie.name = f"m{self._names:03d}"
        zombie.generation, zombie.assignment = -1, None
        zombie.wants_to_join = True
        self.workers[zombie.name] = zombie
        self.check_owners()

    def round(self) -> dict[str, Share]:
        """Everybody joins, and is told; nobody has heard yet."""
        self.rounds += 1
        for worker in self.workers.values():
            self.close(worker)
            self._measure(worker)
            worker.assignment, worker.wants_to_join = None, False
        metadata = {
            name: describe(worker.instance, worker.holdings, worker.generation)
            for name, worker in self.workers.items()
        }
        led = lead(metadata, self.hops, self.partitions, self.rules)
        self._check_shares(led.shares)
        self.generation += 1
        for name, worker in self.workers.items():
            worker.assignment = self.generation, led.assignments[name]
        return led.shares

    def hear(self, worker: Worker) -> None:
        """A worker hears what it was told."""
        if worker.assignment is None:
            return
        worker.generation, raw = worker.assignment
        worker.assignment = None
        heard = hear(raw, self.hops)
        before, learning = set(worker.tasks_in(*OWNERS)), worker.tasks_in(State.LEARNER)
        self._do(worker, worker.holdings.told(heard.share))
        self.moves += len(before - heard.share.active)
        worker.learned += len(set(worker.tasks_in(State.LEARNER)) - set(learning))
        worker.wants_to_join |= heard.joins_at_once
        self.check_owners()

    def open(self, worker: Worker) -> None:
        """Let the tasks run that a worker took over."""
        for task in worker.tasks_in(State.ACTIVATING):
            worker.folder.positions[task] = self.ends[task]
            worker.holdings.opened(task)
        self.check_owners()

    def close(self, worker: Worker) -> None:
        """Close the tasks that were taken from a worker, with a last commit where that counts."""
        for task in worker.tasks_in(State.REVOKING, State.LOST):
            if worker.holdings.state(task) is State.REVOKING:
                self._commit(worker, task)
            self._do(worker, worker.holdings.closed(task))
        self.check_owners()

    def grow(self, hop: int, count: int) -> None:
        """A topic gets more partitions."""
        new = [
            TaskId(hop, number) for number in range(self.partitions[self.hops[hop].topic], count)
        ]
        self.partitions[self.hops[hop].topic] = count
        self.tasks = sorted([*self.tasks, *new])
        self.ends |= dict.fromkeys(new, 0)

    def run(self, records: int) -> None:
        """Everybody processes; whoever was thrown out is fenced."""
        for worker in self.workers.values():
            for task in worker.tasks_in(State.ACTIVE):
                self.ends[task] += records
                worker.folder.positions[task] = self.ends[task]

    def follow(self, worker: Worker, records: int) -> None:
        """A worker reads so many records of every changelog that it follows."""
        positions = worker.folder.positions
        for task in worker.holdings.following:
            positions[task] = min(self.ends[task], positions[task] + records)
        self._measure(worker)

    # Consequences.

    def settle(self) -> None:
        """Let everything that is under way come to its end, while records go on coming in."""
        rounds = 0
        self.round()
        while True:
            for worker in self.workers.values():
                self.hear(worker)
                self.open(worker)
                self.close(worker)
            self.run(TRICKLE)
            if not self._wants():
                for worker in self.workers.values():
                    self.follow(worker, STRETCH)
            if self._wants():
                rounds += 1
                assert rounds < ROUNDS_MAX, "the group does not come to rest"
                self.round()
            elif not any(worker.holdings.learning for worker in self.workers.values()):
                return

    def owned(self) -> dict[str, frozenset[TaskId]]:
        """Return the tasks that each worker runs, by what it does and not by what it says."""
        return {name: frozenset(worker.tasks_in(*OWNERS)) for name, worker in self.workers.items()}

    def roles(self) -> dict[str, dict[TaskId, State]]:
        """Return the state of each task at each worker."""
        return {name: dict(worker.holdings.states) for name, worker in self.workers.items()}

    @property
    def learned(self) -> int:
        """How often anybody who is there began to learn a task."""
        return sum(worker.learned for worker in self.workers.values())

    def lag(self, worker: Worker, task: TaskId) -> int:
        """How many records a worker's copy lacks."""
        return self.ends[task] - worker.folder.positions.get(task, 0)

    def _wants(self) -> bool:
        return any(worker.wants_to_join for worker in self.workers.values())

    def _do(self, worker: Worker, steps: Iterable[Step]) -> None:
        for task, action in steps:
            if action is Action.ASK:
                worker.wants_to_join = True
            elif action is Action.FOLLOW:
                worker.folder.positions.setdefault(task, 0)

    def _commit(self, worker: Worker, task: TaskId) -> None:
        """The last commit is larger than any lag that is acceptable."""
        self.ends[task] += 3 * self.rules.acceptable_recovery_lag + 1
        worker.folder.positions[task] = self.ends[task]

    def _measure(self, worker: Worker) -> None:
        lags = {task: self.lag(worker, task) for task in worker.folder.positions}
        self._do(worker, worker.holdings.measured(lags))

    # Invariants.

    def check_owners(self) -> None:
        """Never two owners, of those that the group knows."""
        owners = Counter(task for by in self.owned().values() for task in by)
        twice = {task: self._by_state(task) for task, count in owners.items() if count > 1}
        assert not twice, f"two owners: {twice}"

    def _by_state(self, task: TaskId) -> dict[str, State]:
        return {name: worker.holdings.state(task) for name, worker in self.workers.items()}

    def _check_shares(self, shares: dict[str, Share]) -> None:
        learners = sum(len(share.learners) for share in shares.values())
        assert learners <= self.rules.max_warmup_replicas, "too many learners"
        withheld = set(self.tasks) - {task for share in shares.values() for task in share.active}
        owned = self.owned()
        for name, share in shares.items():
            taken = owned[name] - share.active
            for task in taken:
                assert self._is_somebody_ready(task, name, shares), f"{task} taken from {name}"
            assert not withheld or share.next_rebalance_ms == 0, "withheld, and nobody hurries"

    def _is_somebody_ready(self, task: TaskId, owner: str, shares: dict[str, Share]) -> bool:
        return any(
            task in shares[name].promoted
            and (
                self._has_caught_up(task, worker.folder)
                or self.lag(worker, task) <= self.rules.acceptable_recovery_lag
                or worker.folder is self.workers[owner].folder
            )
            for name, worker in self.workers.items()
            if name != owner
        )

    def _has_caught_up(self, task: TaskId, folder: Folder) -> bool:
        """Return whether a worker has caught up on a task in this folder, itself or another one."""
        return any(
            worker.folder is folder and worker.holdings.state(task) in READY
            for worker in self.workers.values()
        )

    def check_settled(self) -> None:
        """Every task runs once, evenly, with its copies; and a quiet group moves nothing."""
        for task in self.tasks:
            states = Counter(self._by_state(task).values())
            assert states[State.ACTIVE] == 1, f"{task} is {states}"
        for hop in range(len(self.hops)):
            self._check_balance([task for task in self.tasks if task.hop == hop])
        self._check_balance(self.tasks)
        owned, moves = self.owned(), self.moves
        for _ in range(QUIET_ROUNDS):
            roles = self.roles()
            self._pass_a_round()
            assert (self.owned(), self.moves) == (owned, moves), "a quiet group moved something"
        assert self.roles() == roles, "a quiet group changed a role"
        self._check_copies()

    def _pass_a_round(self) -> None:
        self.round()
        for worker in self.workers.values():
            self.hear(worker)
            self.follow(worker, max(self.ends.values()))

    def _check_balance(self, tasks: Sequence[TaskId]) -> None:
        total = sum(worker.instance.capacity for worker in self.workers.values())
        counts: Counter[bytes] = Counter()
        capacities: Counter[bytes] = Counter()
        for worker in self.workers.values():
            counts[worker.folder.client] += len(worker.holdings.owned.intersection(tasks))
            capacities[worker.folder.client] += worker.instance.capacity
        for client, capacity in capacities.items():
            share = Fraction(len(tasks) * capacity, total)
            assert floor(share) <= counts[client] <= ceil(share), f"{counts} of {len(tasks)}"

    def _check_copies(self) -> None:
        clients = {worker.folder.client for worker in self.workers.values()}
        for task in self.tasks:
            holders = {
                worker.folder.client
                for worker in self.workers.values()
                if worker.holdings.state(task) is State.STANDBY
            }
            owner = self._owner(task).folder.client
            assert owner not in holders, "a copy where the owner is"
            assert len(holders) == min(self.rules.standbys, len(clients) - 1), "copies missing"

    def _owner(self, task: TaskId) -> Worker:
        return next(by for by in self.workers.values() if task in by.holdings.owned)


def some(items: Iterable[Worker], number: int) -> Worker:
    """One of some workers."""
    found = sorted(items, key=lambda worker: worker.name)
    return found[number % len(found)]
