"""At the right table of a foreign-key join: which left rows asked for which key, and the answers.

Asks and changes of the right table come one by one, or all of a batch at once, in columns.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from headrace.spark_jobs.versioned.layout import decode_subscriptions, encode_subscriptions
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import Buckets
from headrace.spark_jobs.versioned.table_rows import TableRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.changes import Change, Changes
    from headrace.spark_jobs.versioned.history import Version
    from headrace.spark_jobs.versioned.records import Integers, Objects
    from headrace.spark_jobs.versioned.replacing import Latest
    from headrace.spark_jobs.versioned.state import TaskState


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

    def __init__(self, text: str) -> None:
        self.word = text.encode()
        """Its name in messages. An `Ask` is slow to look up in a dictionary."""


_UNSUBSCRIBES = (Ask.FORGET, Ask.FORGET_AND_ANSWER)


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


class Asks(NamedTuple):
    """Subscriptions on their way, in columns."""

    causes: Integers
    foreign_keys: Objects
    primary_keys: Objects
    marks: Objects
    asks: Objects
    """`Ask`s."""
    times_ms: Integers


class Answered(NamedTuple):
    """Answers in columns, in the order of their causes."""

    causes: Integers
    sources: Integers
    """The number of the ask that each answers, or behind all asks that of a change."""
    primary_keys: Objects
    marks: Objects
    foreign_values: Objects
    times_ms: Integers


class Readable(Protocol):
    """A table, or a store, that can look up a key's latest value."""

    def latest(self, key: bytes) -> Version | None:
        """Return the latest value."""


class Answering:
    """Remembers which left rows asked for which key, and answers them."""

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
        if foreign_key is not None:
            if ask is not Ask.FORGET:
                met = right.latest(foreign_key)
            bucket = self._subscribers.to_change(foreign_key)
            kept = None if ask in _UNSUBSCRIBES else mark
            _remember(bucket, foreign_key, primary_key, kept)
        if ask is Ask.FORGET or (ask is Ask.IF_PRESENT and met is None):
            return []
        if met is None:
            return [Answer(cause, primary_key, mark, None, time_ms, record)]
        value = None if ask is Ask.FORGET_AND_ANSWER else met.value
        answer_ms = max(time_ms, met.valid_from_ms)
        return [Answer(cause, primary_key, mark, value, answer_ms, record)]

    def update(self, change: Change, *, versioned: bool) -> list[Answer]:
        """Answer all rows that asked for a right key, in the byte order of their primary keys."""
        cause, key, new, _, time_ms, _, record = change
        self._count(1, 1 if change.is_latest or not versioned else 0)
        if versioned and not change.is_latest:
            return []
        marks = self._subscribers.to_read(key).get(key, {})
        return [
            Answer(cause, primary_key, mark, new, time_ms, record)
            for primary_key, mark in sorted(marks.items())
        ]

    def take_all(self, asks: Asks, met: Latest, changes: Changes, *, versioned: bool) -> Answered:
        """Do as `ask` and `update` for a batch; `met` is the right value that each ask met."""
        asked = _asked(asks, met)
        updates, primary_keys, marks = self._in_order(asks, changes, versioned=versioned)
        causes = np.concatenate([asks.causes[asked], changes.causes[updates]])
        order = np.argsort(causes, kind="stable")
        values = met.values.copy()
        values[_are(asks, Ask.FORGET_AND_ANSWER)] = None
        columns = (
            (asked, len(asks.causes) + updates),
            (asks.primary_keys[asked], primary_keys),
            (asks.marks[asked], marks),
            (values[asked], changes.news[updates]),
            (np.maximum(asks.times_ms, met.times_ms)[asked], changes.times_ms[updates]),
        )
        return Answered(causes[order], *(np.concatenate(column)[order] for column in columns))

    def _in_order(
        self, asks: Asks, changes: Changes, *, versioned: bool
    ) -> tuple[Integers, Objects, Objects]:
        """Take subscriptions and changes; return change, primary key and mark of each answer."""
        size = len(changes.causes)
        taken = np.flatnonzero(changes.are_latest) if versioned else np.arange(size)
        self._count(size, len(taken))
        keyed = np.flatnonzero(are_present(asks.foreign_keys))
        changed_keys = changes.keys[taken].tolist()
        keys = [*asks.foreign_keys[keyed].tolist(), *changed_keys]
        buckets = self._subscribers.of_all(keys, changed=len(keyed))
        causes = np.concatenate([asks.causes[keyed], changes.causes[taken]])
        marks = asks.marks.copy()
        marks[_are(asks, *_UNSUBSCRIBES)] = None
        kept, primary_keys = marks.tolist(), asks.primary_keys.tolist()
        sources = [*keyed.tolist(), *taken.tolist()]
        answers: list[tuple[int, bytes, bytes]] = []
        for at in np.argsort(causes, kind="stable").tolist():
            key, source = keys[at], sources[at]
            if at < len(keyed):
                _remember(buckets[at], key, primary_keys[source], kept[source])
            elif (found := buckets[at].get(key)) is not None:
                answers += [(source, *each) for each in sorted(found.items())]
        columns = zip(*answers, strict=True) if answers else [()] * 3
        updates, of_rows, of_marks = columns
        return np.array(updates, np.int64), objects(of_rows), objects(of_marks)

    def save(self) -> None:
        """Write out what changed."""
        self._subscribers.save()

    def _count(self, changes: int, passed: int) -> None:
        self._state.count(f"{self._name}:taken", changes)
        self._state.count(f"{self._name}:passed", passed)
        self._state.count(f"{self._name}:dropped:out-of-order", changes - passed)


def _are(asks: Asks, *requests: Ask) -> NDArray[np.bool_]:
    """Return which asks are one of these."""
    found: NDArray[np.bool_] = np.logical_or.reduce([asks.asks == each for each in requests])
    return found


def _asked(asks: Asks, met: Latest) -> Integers:
    """Return which asks get an answer."""
    needs_row = _are(asks, Ask.IF_PRESENT) & ~are_present(met.values)
    return np.flatnonzero(~(needs_row | _are(asks, Ask.FORGET)))


def _remember(
    bucket: dict[bytes, dict[bytes, bytes]],
    foreign_key: bytes,
    primary_key: bytes,
    mark: bytes | None,
) -> None:
    """Keep the mark of a left row; without one the row points elsewhere, or is deleted."""
    if mark is not None:
        bucket.setdefault(foreign_key, {})[primary_key] = mark
        return
    marks = bucket.get(foreign_key)
    if marks is not None:
        marks.pop(primary_key, None)
        if not marks:
            del bucket[foreign_key]
