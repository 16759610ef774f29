"""A naive broker that keeps what Kafka promises, and forgets what Kafka forgets.

A producer of an older epoch is refused. A reader of what is committed stops before what is open. A
transaction that is to be committed is marked some time later. The group takes offsets from a member
of its generation alone. After an outage a partition may never be told how a transaction ended. A
transaction that stands open there ends with the next one of the same producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.services.group.shared_transaction import Word

Place = tuple[str, int]
"""A topic and its partition."""
SHARED = ("shared", 0)
"""All partitions of a pipeline write here, as to a topic of dead records."""


class FencedError(Exception):
    """Somebody has a later epoch."""


class NoMemberError(Exception):
    """The group does not know this member."""


class StaleError(Exception):
    """The group has gone on to another generation; the member will hear of it."""


@dataclass(eq=False)
class Transaction:
    """One, from begin to marker."""

    name: str
    epoch: int
    state: str = "open"
    """open, prepared, committed, aborted."""
    offsets: dict[int, int] = field(default_factory=dict)
    open_in: set[Place] = field(default_factory=set)
    """Places that were not told how it ended."""
    ended_in: dict[Place, bool] = field(default_factory=dict)
    """Whether it counts there."""
    forgotten_in: Place | None = None
    """The place that will not be told how it ends."""


@dataclass
class Producer:
    """A producer, as its coordinator knows it."""

    epoch: int = 0
    last: int | None = None
    """The epoch that was named by whoever was given this one."""
    transaction: Transaction | None = None


@dataclass(frozen=True)
class Row:
    """The row that closes a commit in a changelog."""

    position: int
    producer: str | None


class Broker:
    """Logs, coordinator and group."""

    def __init__(self, partitions: int, records: int) -> None:
        """So many records wait in each partition."""
        self.end = records
        self.logs: dict[Place, list[tuple[Transaction, object]]] = {SHARED: []}
        for number in range(partitions):
            self.logs |= {("cleaned", number): [], ("changelog", number): []}
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.producers: dict[str, Producer] = {}
        self.unmarked: list[Transaction] = []
        """Transactions that are committed, and not yet readable."""
        self.generation = 0
        self.owned: dict[str, set[int]] = {}
        """By member."""

    # The coordinator of transactions.

    def told(self, name: str) -> Word | None:
        """Return its word on a producer, once nothing is on its way; None where that is new."""
        producer = self.producers.get(name)
        if producer is None:
            return None
        transaction = producer.transaction
        if transaction is not None and transaction.state == "prepared":
            self.mark(transaction)
        state = "given" if transaction is None else transaction.state
        return Word(producer.epoch, is_given=state == "given", is_aborted=state == "aborted")

    def is_open(self, name: str) -> bool:
        """Whether a producer has a transaction open, and may go on with it."""
        transaction = self.producers[name].transaction
        return transaction is not None and transaction.state == "open"

    def init(self, name: str, last: int | None) -> int | None:
        """A new epoch for whoever knows the last; None where it is to ask for the word again.

        A transaction that is open is aborted first. Two who know the same are given the same.
        """
        producer = self.producers.setdefault(name, Producer())
        transaction = producer.transaction
        if transaction is not None and transaction.state == "open":
            self._abort(producer, transaction)
            return None
        if last is not None and last != producer.epoch:
            return producer.epoch if last == producer.last else None
        if transaction is not None:
            self.mark(transaction)
        producer.last, producer.transaction = last, None
        producer.epoch += 1
        return producer.epoch

    def _abort(self, producer: Producer, transaction: Transaction) -> None:
        producer.epoch += 1
        producer.last = None
        transaction.state = "aborted"
        self.mark(transaction)

    def _open(self, name: str, epoch: int) -> Transaction:
        producer = self.producers[name]
        if producer.epoch != epoch:
            raise FencedError
        transaction = producer.transaction
        if transaction is not None and transaction.state != "open":
            self.mark(transaction)
        if transaction is None or transaction.state != "open":
            transaction = producer.transaction = Transaction(name, epoch)
        return transaction

    def write(self, name: str, epoch: int, place: Place, what: object) -> None:
        """Write something as part of a producer's transaction."""
        transaction = self._open(name, epoch)
        transaction.open_in.add(place)
        self.logs[place].append((transaction, what))

    def tell(self, name: str, epoch: int, member: tuple[str, int], offsets: dict[int, int]) -> None:
        """Make offsets part of the transaction."""
        transaction = self._open(name, epoch)
        self.check(*member)
        transaction.offsets = dict(offsets)

    def commit(self, name: str, epoch: int) -> None:
        """It will count, and readers see it later."""
        transaction = self._open(name, epoch)
        transaction.state = "prepared"
        self.unmarked.append(transaction)

    def mark(self, transaction: Transaction) -> None:
        """Write the markers of a transaction that is over."""
        if transaction.state == "prepared":
            transaction.state = "committed"
            self.unmarked.remove(transaction)
            self.offsets |= transaction.offsets
        for place in [*transaction.open_in]:
            if place != transaction.forgotten_in:
                self.end_in(transaction, place, commits=transaction.state == "committed")

    def end_in(self, transaction: Transaction, place: Place, *, commits: bool) -> None:
        """Write one marker; it ends all that its producer has open there."""
        for other, _ in self.logs[place]:
            if other.name == transaction.name and place in other.open_in:
                other.open_in.discard(place)
                other.ended_in[place] = commits

    def expire(self, name: str) -> None:
        """A transaction has been open for too long."""
        if self.is_open(name):
            self.init(name, None)

    def forget(self, place: Place) -> None:
        """A broker dies: this place is not told how transactions end that are on their way."""
        for producer in self.producers.values():
            transaction = producer.transaction
            if transaction is not None and transaction.state in {"open", "prepared"}:
                transaction.forgotten_in = place

    # The group.

    def check(self, name: str, generation: int) -> None:
        """Refuse who is no member, or of another generation."""
        if name not in self.owned:
            raise NoMemberError
        if generation != self.generation:
            raise StaleError

    def free(self) -> set[int]:
        """Partitions that nobody owns."""
        return set(self.offsets).difference(*self.owned.values())

    # Readers.

    def open_in(self, place: Place) -> list[Transaction]:
        """The transactions that stand open in a place."""
        return [
            one for one in dict.fromkeys(t for t, _ in self.logs[place]) if place in one.open_in
        ]

    def read(self, place: Place) -> list[object]:
        """Return the records that count, up to the first that is open."""
        found = []
        for transaction, what in self.logs[place]:
            if place in transaction.open_in:
                break
            if transaction.ended_in[place]:
                found.append(what)
        return found

    def last_row(self, partition: int) -> Row:
        """Return the last row that readers of committed records see."""
        rows = [row for row in self.read(("changelog", partition)) if isinstance(row, Row)]
        return rows[-1] if rows else Row(0, None)

    def hides(self, partition: int) -> bool:
        """Whether the end of a changelog cannot be read yet."""
        return bool(self.open_in(("changelog", partition)))

    def check_ends(self) -> None:
        """See that no transaction ended here so, and elsewhere otherwise."""
        for place, log in self.logs.items():
            for transaction, _ in log:
                if place not in transaction.open_in:
                    commits = transaction.state == "committed"
                    assert transaction.ended_in[place] == commits, (place, transaction)
