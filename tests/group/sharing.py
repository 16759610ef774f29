"""Instances with producers over a naive broker, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.services.group.shared_transaction import (
    SharedTransaction,
    Stage,
    Word,
    is_behind,
    must_end,
    must_end_stranger,
    verdict,
)
from tests.group.naive_broker import (
    SHARED,
    Broker,
    FencedError,
    NoMemberError,
    Place,
    Row,
    StaleError,
)


@dataclass(eq=False)
class Task:
    """One partition, where it is run."""

    partition: int
    producer: int
    position: int = 0
    is_running: bool = False
    is_leaving: bool = False
    has_left: bool = False
    """It has said so; what is left is that it counts."""
    named: str | None = None
    ended: str | None = None
    """The producer that was ended last."""
    has_read: bool = False
    has_looked: bool = False
    """Whether nobody else had anything open when it looked."""
    has_asked: bool = False
    """Whether the group counted the instance behind that."""


class Taking:
    """A producer on its way to a new epoch, in steps between which its taker may die."""

    def __init__(self, broker: Broker, name: str) -> None:
        """It has asked for nothing yet."""
        self.name = name
        self.is_told = False
        self.epoch: int | None = None
        self._broker = broker
        self._word: Word | None = None

    def step(self) -> int | None:
        """Take the next step; the new epoch, once nothing of an earlier one stands open."""
        if not self.is_told:
            self._word = self._broker.told(self.name)
            self.sweep()
            self.is_told = True
        elif self.epoch is None:
            self.ask()
        else:
            self._word = Word(self.epoch, is_given=True, is_aborted=False)
            self.sweep()
            return self.epoch
        return None

    def ask(self) -> None:
        """Ask for a new epoch; if somebody has come since, all is asked again."""
        last = None if self._word is None else self._word.epoch
        self.epoch = self._broker.init(self.name, last)
        self.is_told = self.epoch is not None

    def sweep(self) -> None:
        """End what stands open of this producer, in all places, as its coordinator says."""
        word = self._word
        if word is None or not (word.is_given or word.is_aborted):
            return
        for place in self._broker.logs:
            end_by(self._broker, word, self.name, place)


def end_by(broker: Broker, word: Word, name: str, place: Place) -> None:
    """End what a producer has open in a place, by the word on it."""
    for one in broker.open_in(place):
        if one.name == name and is_behind(word, one.epoch):
            commits = verdict(word, one.epoch)
            assert commits is not None, (name, word, one)
            broker.end_in(one, place, commits=commits)


class Instance:
    """A process: a member of the group, with shared producers."""

    def __init__(self, broker: Broker, name: str, life: int, producers: int) -> None:
        """It begins; what an earlier process of this name left open has yet to be ended."""
        self.broker, self.name = broker, name
        self._lives = life
        self.transactions: list[SharedTransaction[int, int]] = [
            SharedTransaction() for _ in range(producers)
        ]
        self.epochs = [0] * producers
        self._revivals = [Taking(broker, self.producer(number)) for number in range(producers)]
        for transaction in self.transactions:
            transaction.broke()
        self._takings: dict[int, Taking] = {}
        """Producers of others that a partition's new owner ends."""
        self.tasks: dict[int, Task] = {}
        self.told = [False] * producers
        self.join()

    def producer(self, number: int) -> str:
        """Its name."""
        return f"{self.name}/{number}"

    @property
    def names(self) -> list[str]:
        """Of all producers."""
        return [self.producer(number) for number in range(len(self.transactions))]

    def join(self) -> None:
        """Become a member, as a new one."""
        self._lives += 1
        self.member = f"{self.name}#{self._lives}"
        self.broker.owned[self.member] = set()
        self.broker.generation += 1
        self.generation = self.broker.generation

    @property
    def is_member(self) -> bool:
        """Whether the group counts it."""
        return self.member in self.broker.owned

    def hear(self) -> None:
        """Hear of the generation, of what is to be run and of what is to be given up."""
        if not self.is_member:
            for number in range(len(self.transactions)):
                self._break(number)
            self.tasks.clear()
            self._takings.clear()
            self.join()
            return
        self.generation = self.broker.generation
        for partition in self.broker.owned[self.member] - set(self.tasks):
            counts = [
                sum(one.producer == n for one in self.tasks.values())
                for n in range(len(self.transactions))
            ]
            self.tasks[partition] = Task(partition, counts.index(min(counts)))

    def give_up(self, partition: int) -> None:
        """It was told that somebody else shall have it."""
        self.tasks[partition].is_leaving = True

    def fail(self, partition: int) -> None:
        """A record cannot be processed."""
        task = self.tasks[partition]
        if self.transactions[task.producer].breaks_without(partition):
            self._break(task.producer)
        elif not task.has_left:
            self._again(task)

    def lose_connections(self) -> None:
        """A broker has died: no request of before may meet a transaction of after."""
        for number in range(len(self.transactions)):
            self._break(number)

    def _break(self, number: int) -> None:
        # All begin again, since each has begun to send by the producer as it was.
        for task in self.tasks.values():
            if task.producer == number:
                self._again(task)
        self.transactions[number].broke()
        self._revivals[number] = Taking(self.broker, self.producer(number))
        self.told[number] = False

    def _again(self, task: Task) -> None:
        task.is_running = task.has_read = task.has_looked = task.has_asked = task.has_left = False
        task.ended = None
        self._takings.pop(task.partition, None)

    def steps(self) -> Iterator[tuple[str, int]]:
        """Yield all that it can do next."""
        for number, transaction in enumerate(self.transactions):
            if transaction.stage is Stage.BROKEN:
                yield "revive", number
            if transaction.stage is Stage.ENDING:
                yield "end", number
            if transaction.stage is Stage.OPEN:
                yield "close", number
        for task in self.tasks.values():
            yield from self._next(task)

    def _next(self, task: Task) -> Iterator[tuple[str, int]]:
        partition, transaction = task.partition, self.transactions[task.producer]
        if not task.has_read:
            # Where the end is under way, what it comes to is waited for.
            if partition not in transaction.partitions:
                yield "read", partition
        elif not task.is_running and task.named is not None:
            yield "succeed", partition
        elif not task.has_looked:
            yield "look", partition
        elif not task.has_asked:
            yield "ask", partition
        elif not task.is_running and self.broker.hides(partition):
            # A commit of this instance is about to be readable.
            return
        elif transaction.owes(partition):
            yield "done", partition
        elif transaction.may_begin():
            yield from self._sends(task)

    def _sends(self, task: Task) -> Iterator[tuple[str, int]]:
        is_in = task.partition in self.transactions[task.producer].partitions
        if not task.is_running:
            yield "open", task.partition
        elif task.is_leaving:
            yield "leave", task.partition
        elif task.position < self.broker.end:
            yield "clean", task.partition
        if is_in and task.is_running:
            yield "done", task.partition

    def do(self, step: str, number: int) -> None:
        """Take one step; whatever the broker refuses breaks the producer."""
        producer = number if step in {"revive", "end", "close"} else self.tasks[number].producer
        try:
            getattr(self, f"_{step}")(number)
        except (FencedError, NoMemberError):
            self._break(producer)
            if step not in {"revive", "end", "close"} and number in self.tasks:
                self._again(self.tasks[number])

    def _revive(self, number: int) -> None:
        epoch = self._revivals[number].step()
        if epoch is not None:
            self.epochs[number] = epoch
            self.transactions[number].revived()

    def _close(self, number: int) -> None:
        self.transactions[number].close()

    def _read(self, partition: int) -> None:
        task = self.tasks[partition]
        named = self.broker.last_row(partition).producer
        is_ended = named == task.ended
        task.named = named if must_end(named, self.names) and not is_ended else None
        task.has_read = True

    def _succeed(self, partition: int) -> None:
        """End the producer of whoever had this partition, if the group still counts us."""
        task = self.tasks[partition]
        if not self.is_member:
            raise NoMemberError
        assert task.named is not None
        taking = self._takings.setdefault(partition, Taking(self.broker, task.named))
        if taking.step() is not None:
            del self._takings[partition]
            task.ended, task.named = task.named, None
            # The rows that can be read now may name a later owner's producer.
            task.has_read = False

    def _look(self, partition: int) -> None:
        """End what others have open that nobody has named."""
        task = self.tasks[partition]
        for place in ("changelog", partition), ("cleaned", partition), SHARED:
            for one in self.broker.open_in(place):
                if one.name not in self.names and self._must_end(one.name, place):
                    task.named = one.name
                    return
        task.has_looked = True

    def _must_end(self, name: str, place: Place) -> bool:
        self.broker.told(name)
        if all(one.name != name for one in self.broker.open_in(place)):
            return False
        is_over = not self.broker.is_open(name)
        return must_end_stranger(is_over=is_over, is_alone=place != SHARED)

    def _ask(self, partition: int) -> None:
        """Ask the group once more before anything is written."""
        if not self.is_member:
            raise NoMemberError
        self.tasks[partition].has_asked = True

    def _open(self, partition: int) -> None:
        """Read to the end, and say whose it is before anything is written."""
        task = self.tasks[partition]
        task.position = self.broker.last_row(partition).position
        self._begin(task)
        task.is_running = True
        self._done(partition)

    def _begin(self, task: Task) -> None:
        transaction = self.transactions[task.producer]
        if task.partition not in transaction.partitions:
            transaction.begin(task.partition)

    def _clean(self, partition: int) -> None:
        task = self.tasks[partition]
        self._begin(task)
        for place in ("cleaned", partition), SHARED:
            what = partition, task.position
            self.broker.write(self.producer(task.producer), self.epochs[task.producer], place, what)
        task.position += 1

    def _leave(self, partition: int) -> None:
        """Commit once more, and take the name back."""
        task = self.tasks[partition]
        self._begin(task)
        task.has_left = True
        self._done(partition)

    def _done(self, partition: int) -> None:
        task = self.tasks[partition]
        name = self.producer(task.producer)
        row = Row(task.position, None if task.has_left else name)
        self.broker.write(name, self.epochs[task.producer], ("changelog", partition), row)
        self.transactions[task.producer].done(partition, task.position)

    def _end(self, number: int) -> None:
        transaction, name, epoch = (
            self.transactions[number],
            self.producer(number),
            self.epochs[number],
        )
        if not self.told[number]:
            offsets = {one: self.tasks[one].position for one in transaction.partitions}
            try:
                self.broker.tell(name, epoch, (self.member, self.generation), offsets)
            except StaleError:
                return  # It will hear of the next generation, and tell them again.
            self.told[number] = True
            return
        self.broker.commit(name, epoch)
        left = [one for one in transaction.partitions if self.tasks[one].has_left]
        transaction.ended()
        self.told[number] = False
        for partition in left:
            del self.tasks[partition]
            if self.is_member:
                self.broker.owned[self.member].discard(partition)
