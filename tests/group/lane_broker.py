"""A broker for lanes, naive, that keeps what Kafka promises.

A producer of an older epoch is refused. A reader of what is committed stops before what is open. A
transaction that is to be committed is marked some time later. The group takes offsets from a member
of its generation alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class FencedError(Exception):
    """Somebody has a later epoch."""


class NoMemberError(Exception):
    """The group does not know this member."""


class StaleError(Exception):
    """The group has gone on to another generation; the member will hear of it."""


@dataclass(eq=False)
class Transaction:
    """One, from begin to marker."""

    state: str = "open"
    """open, prepared, committed, aborted."""
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass
class Producer:
    """A lane, as its coordinator knows it."""

    epoch: int = 0
    transaction: Transaction | None = None


@dataclass(frozen=True)
class Row:
    """The row that closes a commit in a changelog."""

    position: int
    lane: str | None


class Broker:
    """Logs, coordinator and group."""

    def __init__(self, partitions: int, records: int) -> None:
        """So many records wait in each partition."""
        self.end = records
        self.cleaned: list[list[tuple[Transaction, int]]] = [[] for _ in range(partitions)]
        self.changelog: list[list[tuple[Transaction, Row]]] = [[] for _ in range(partitions)]
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.producers: dict[str, Producer] = {}
        self.unmarked: list[Transaction] = []
        """Transactions that are committed, and not yet readable."""
        self.generation = 0
        self.owned: dict[str, set[int]] = {}
        """By member."""

    def init(self, lane: str) -> int:
        """A new epoch; what is open is aborted, and what is prepared is waited for."""
        producer = self.producers.setdefault(lane, Producer())
        transaction, producer.transaction = producer.transaction, None
        if transaction is not None and transaction.state == "open":
            transaction.state = "aborted"
        if transaction is not None:
            self.mark(transaction)
        producer.epoch += 1
        return producer.epoch

    def _open(self, lane: str, epoch: int) -> Transaction:
        producer = self.producers[lane]
        if producer.epoch != epoch:
            raise FencedError
        if producer.transaction is not None and producer.transaction.state != "open":
            self.mark(producer.transaction)
            producer.transaction = None
        if producer.transaction is None:
            producer.transaction = Transaction()
        return producer.transaction

    def clean(self, lane: str, epoch: int, partition: int, record: int) -> None:
        """Write a record."""
        self.cleaned[partition].append((self._open(lane, epoch), record))

    def log(self, lane: str, epoch: int, partition: int, row: Row) -> None:
        """Write what closes a commit."""
        self.changelog[partition].append((self._open(lane, epoch), row))

    def tell(self, lane: str, epoch: int, member: tuple[str, int], offsets: dict[int, int]) -> None:
        """Make offsets part of the transaction."""
        transaction = self._open(lane, epoch)
        self.check(*member)
        transaction.offsets = dict(offsets)

    def check(self, name: str, generation: int) -> None:
        """Refuse who is no member, or of another generation."""
        if name not in self.owned:
            raise NoMemberError
        if generation != self.generation:
            raise StaleError

    def commit(self, lane: str, epoch: int) -> None:
        """It will count, and readers see it later."""
        transaction = self._open(lane, epoch)
        transaction.state = "prepared"
        self.unmarked.append(transaction)

    def mark(self, transaction: Transaction) -> None:
        """Write the markers of a transaction that is over."""
        if transaction.state == "prepared":
            transaction.state = "committed"
            self.unmarked.remove(transaction)
            self.offsets |= transaction.offsets

    def expire(self, lane: str) -> None:
        """A transaction has been open for too long."""
        transaction = self.producers[lane].transaction
        if transaction is not None and transaction.state == "open":
            self.init(lane)

    def last_row(self, partition: int) -> Row:
        """Return the last row that readers of committed records see."""
        row = Row(0, None)
        for transaction, one in self.changelog[partition]:
            if transaction.state in {"open", "prepared"}:
                break
            row = one if transaction.state == "committed" else row
        return row

    def hides(self, partition: int) -> bool:
        """Whether the end of a changelog cannot be read yet."""
        return any(one.state in {"open", "prepared"} for one, _ in self.changelog[partition])

    def read(self, partition: int) -> list[int]:
        """The cleaned records that count."""
        log = self.cleaned[partition]
        return [record for transaction, record in log if transaction.state == "committed"]

    def free(self) -> set[int]:
        """Partitions that nobody owns."""
        return set(self.offsets).difference(*self.owned.values())
