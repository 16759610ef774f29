"""The foreign-key join: left rows point at right rows (rule F4).

    left change -> Subscribing -> subscription -> Answering -> answer -> Resolving -> result
                                  right change ->

In one task the three run one after the other (`ForeignKeyJoin`). Over many tasks `Answering` runs
where the foreign key is. `Resolving` runs where the primary key is, with a store of left values of
its own. Rows must reach each of them in the order of the records that caused them. An answer
carries the mark of the left value that asked for it, and is dropped if that value is no longer the
latest. So a slow answer never overwrites a newer result.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.functions import as_value, of_step
from headrace.spark_jobs.versioned.layout import decode_subscriptions, encode_subscriptions
from headrace.spark_jobs.versioned.state import Buckets, TaskState
from headrace.spark_jobs.versioned.table_rows import TableRows
from headrace.spark_jobs.versioned.tables import Change, StoredTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.history import Version, VersionedStore
    from headrace.spark_jobs.versioned.table_table import Joiner

MARK_BYTES = 16


class Ask(Enum):
    """The request of a subscription."""

    ALWAYS = "always"
    """Subscribe, and answer even if there is no right row."""
    IF_PRESENT = "if-present"
    """Subscribe, and answer if there is a right row."""
    FORGET = "forget"
    """Unsubscribe, without an answer."""
    FORGET_AND_ANSWER = "forget-and-answer"
    """Unsubscribe, and answer that there is no right row any more."""


class Subscription(NamedTuple):
    """A left row's request for the right row that it points at."""

    cause: int
    foreign_key: bytes | None
    primary_key: bytes
    mark: bytes | None
    """Tells left values apart; None for a row that is deleted."""
    ask: Ask
    timestamp_ms: int
    record: Record


class Answer(NamedTuple):
    """A right value on its way to a left row."""

    cause: int
    primary_key: bytes
    mark: bytes | None
    foreign_value: bytes | None
    timestamp_ms: int
    record: Record


class Readable(Protocol):
    """A table, or a store, that can look up a key's latest value."""

    def latest(self, key: bytes) -> Version | None:
        """Return the latest value."""


class Subscribing:
    """At the left table: turns each change into subscriptions."""

    def __init__(
        self,
        state: TaskState,
        name: str,
        foreign_key_of: Callable[[bytes, bytes], bytes | None],
        join: Literal["inner", "left"],
    ) -> None:
        self._state = state
        self._name = name
        self._foreign_key_of = of_step(name, foreign_key_of, as_value)
        self._left = join == "left"

    def subscribe(self, change: Change, *, versioned: bool) -> list[Subscription]:
        """Return the subscriptions that a left change makes and ends, in order."""
        self._state.count(f"{self._name}:taken")
        if versioned and not change.is_latest:
            self._state.count(f"{self._name}:dropped:out-of-order")
            return []
        old = self._key_in(change.key, change.old)
        new = self._key_in(change.key, change.new)
        keyless = change.new is not None and new is None and not self._left
        self._state.count(f"{self._name}:{'dropped:null-foreign-key' if keyless else 'passed'}")
        asks = self._left_asks(change, old, new) if self._left else _inner_asks(old, new)
        mark = None if change.new is None else mark_of(change.new)
        return [
            Subscription(
                change.cause, key, change.key, mark, ask, change.timestamp_ms, change.record
            )
            for key, ask in asks
        ]

    def _key_in(self, key: bytes, value: bytes | None) -> bytes | None:
        return None if value is None else self._foreign_key_of(key, value)

    def _left_asks(
        self, change: Change, old: bytes | None, new: bytes | None
    ) -> list[tuple[bytes | None, Ask]]:
        if change.old is None and change.new is None:
            return []
        asks: list[tuple[bytes | None, Ask]] = []
        if old is not None and old != new:
            asks.append((old, Ask.FORGET))
        # A row without a foreign key asks too, since it has a result: itself joined with nothing.
        asks.append((new, Ask.ALWAYS))
        return asks


class Answering:
    """At the right table: remembers which left rows asked for which key, and answers them."""

    def __init__(self, state: TaskState, name: str) -> None:
        self._state = state
        self._name = name
        table = TableRows(state, f"{name}:subscribers")
        self._subscribers = Buckets(table, decode_subscriptions, encode_subscriptions)
        state.add(self)

    def ask(self, subscription: Subscription, right: Readable) -> list[Answer]:
        """Begin or end a subscription, and answer it if it asks for that."""
        cause, foreign_key, primary_key, mark, ask, time_ms, record = subscription
        met = None
        if foreign_key is not None and ask is not Ask.FORGET:
            met = right.latest(foreign_key)
        if foreign_key is not None:
            self._remember(foreign_key, primary_key, mark, ask)
        if ask is Ask.FORGET or (ask is Ask.IF_PRESENT and met is None):
            return []
        value = None if met is None or ask is Ask.FORGET_AND_ANSWER else met.value
        answer_ms = time_ms if met is None else max(time_ms, met.valid_from_ms)
        return [Answer(cause, primary_key, mark, value, answer_ms, record)]

    def update(self, change: Change, *, versioned: bool) -> list[Answer]:
        """Answer all rows that asked for a right key, in the byte order of their primary keys."""
        self._state.count(f"{self._name}:taken")
        if versioned and not change.is_latest:
            self._state.count(f"{self._name}:dropped:out-of-order")
            return []
        self._state.count(f"{self._name}:passed")
        cause, key, new, _, time_ms, _, record = change
        marks = self._subscribers.to_read(key).get(key, {})
        return [
            Answer(cause, primary_key, mark, new, time_ms, record)
            for primary_key, mark in sorted(marks.items())
        ]

    def save(self) -> None:
        """Write out what changed."""
        self._subscribers.save()

    def _remember(self, foreign: bytes, primary: bytes, mark: bytes | None, ask: Ask) -> None:
        bucket = self._subscribers.to_change(foreign)
        if ask in {Ask.FORGET, Ask.FORGET_AND_ANSWER} or mark is None:
            marks = bucket.get(foreign, {})
            marks.pop(primary, None)
            if not marks:
                bucket.pop(foreign, None)
        else:
            bucket.setdefault(foreign, {})[primary] = mark


class Resolving:
    """At the left table again: joins answers to the left values that asked for them."""

    def __init__(
        self, state: TaskState, name: str, joiner: Joiner, join: Literal["inner", "left"]
    ) -> None:
        self._state = state
        self._name = name
        self._joiner = of_step(name, joiner, as_value)
        self._left = join == "left"
        self._unanswered = set(state.notes.get(name, ()))
        state.add(self)

    def changed(self, key: bytes) -> None:
        """Note that a left row changed, of which the answers are still to come."""
        self._unanswered.add(key)

    def resolve(self, answer: Answer, left: Readable) -> Change | None:
        """Return the result, None where the answer is stale."""
        cause, key, mark, foreign_value, time_ms, record = answer
        version = left.latest(key)
        value = None if version is None else version.value
        is_stale = mark != (None if value is None else mark_of(value))
        # The latest value gets no answer if it has no right row. Then its result goes by this one.
        deletes = foreign_value is None and not self._left and key in self._unanswered
        if is_stale and not deletes:
            self._state.count(f"{self._name}:answers:dropped:stale")
            return None
        self._unanswered.discard(key)
        missing = value is None or (foreign_value is None and not self._left)
        new = None if missing or is_stale else self._joiner(value, foreign_value)
        return Change(cause, key, new, None, time_ms, is_latest=True, record=record)

    def save(self) -> None:
        """Note which rows of this batch wait for an answer; no later batch has one for them."""
        self._state.notes[self._name] = frozenset(self._unanswered)


class ForeignKeyJoin(StoredTable):
    """All three in one task; itself a table, and not a versioned one."""

    def __init__(  # noqa: PLR0913 (each is one decision of the user)
        self,
        state: TaskState,
        name: str,
        left: Table,
        right: Table,
        *,
        foreign_key_of: Callable[[bytes, bytes], bytes | None],
        joiner: Joiner,
        join: Literal["inner", "left"],
    ) -> None:
        super().__init__(state, name, None)
        self._left = left
        self._right = right
        left.send_old(force=True)
        right.make_readable()
        self._subscribing = Subscribing(state, name, foreign_key_of, join)
        self._answering = Answering(state, name)
        self._resolving = Resolving(state, name, joiner, join)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the changes of the result by an arrival of either side."""
        answers: list[Answer] = []
        for change in self._left.take(cause, arrival):
            asked = self._subscribing.subscribe(change, versioned=self._left.versioned)
            for subscription in asked:
                answers += self._answering.ask(subscription, self._right)
        for change in self._right.take(cause, arrival):
            answers += self._answering.update(change, versioned=self._right.versioned)
        results = [self._resolving.resolve(answer, self._left) for answer in answers]
        return [each for result in results if result is not None for each in self._accept(result)]

    def versioned_stores(self) -> list[VersionedStore]:
        """Return the versioned stores above both sides."""
        return self._left.versioned_stores() + self._right.versioned_stores()


def _inner_asks(old: bytes | None, new: bytes | None) -> list[tuple[bytes | None, Ask]]:
    if new is None:
        return [] if old is None else [(old, Ask.FORGET_AND_ANSWER)]
    if old is None or old == new:
        return [(new, Ask.IF_PRESENT)]
    return [(old, Ask.FORGET), (new, Ask.ALWAYS)]


def mark_of(value: bytes) -> bytes:
    """Make a mark that tells left values apart without sending them."""
    return blake2b(value, digest_size=MARK_BYTES).digest()
