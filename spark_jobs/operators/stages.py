"""Operators whose rows live in one task and meet in another: foreign-key joins, aggregations.

    foreign key    left -> Ask --asks, left rows--> Answer --answers, rows--> Answered -> result
                                          right ----^
    aggregation    table -> Part --parts--> Folded -> result

Each stage is a processor of its own. Left rows travel with their asks, so that no stage runs twice,
and in each batch they come before the answers. They have a kind of their own on the first way: the
right table may be the result of another such join, which takes its own rows there. An answer to a
row that was replaced in the same batch has another mark than the row, and is dropped, as in Kafka
Streams. So of two changes of a key within one batch, the result may show only the last one. By
`inner` an answer without a right row deletes the result even so, since the last change gets no
answer if it has no right row either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spark_jobs.operators.columns import ANSWER, ASK, LEFT_ROW, PART, ROW
from headrace.spark_jobs.operators.messages import received, sent
from headrace.spark_jobs.operators.results import Collected, Results
from headrace.spark_jobs.operators.running import Running
from headrace.spark_jobs.operators.topology import AggregateStep, ForeignKeyStep, Step
from headrace.spark_jobs.versioned.aggregation import Folding, Regrouping, Standing
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals, in_order, observe_lateness
from headrace.spark_jobs.versioned.foreign_key import (
    Answer,
    Answering,
    Ask,
    Resolving,
    Subscribing,
    Subscription,
)
from headrace.spark_jobs.versioned.history import PlainStore, VersionedStore
from headrace.spark_jobs.versioned.tables import Change, Plain, Storage, StoredTable, Table

if TYPE_CHECKING:
    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.aggregation import Aggregation
    from headrace.spark_jobs.versioned.state import TaskState

LEFT_ROW_SENT, ROW_SENT, ASK_SENT = "left-row", "row", "ask"
ANSWER_SENT, PART_SENT = "answer", "part"
"""Verdicts of the messages from one stage to the next."""
_LATEST, _EARLIER = b"1", b"0"


@dataclass(frozen=True)
class AskStep:
    """The stage of the left rows: it sends each change, and the asks of it."""

    name: str
    left: Step
    foreign: ForeignKeyStep

    @property
    def join(self) -> str:
        """Inner or left."""
        return self.foreign.join

    def open(self, state: TaskState) -> _Asks:
        """Open the stage over the state of a task."""
        return _Asks(state, self)


class _Asks(Running):
    def __init__(self, state: TaskState, step: AskStep) -> None:
        self._state = state
        self._left = step.left.open(state)
        self._left.send_old(force=True)
        foreign = step.foreign
        self._subscribing = Subscribing(state, step.name, foreign.foreign_key_of, foreign.join)

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        rows, asks = Collected(LEFT_ROW_SENT), Collected(ASK_SENT)
        with in_order(enumerate(arrivals)) as numbered:
            for cause, arrival in numbered:
                for change in self._left.take(cause, arrival):
                    self._send(change, rows, asks)
        return [rows.results(), asks.results()]

    def _send(self, change: Change, rows: Collected, asks: Collected) -> None:
        versioned = self._left.versioned
        record = change.record._replace(timestamp_ms=change.timestamp_ms)
        if not versioned or change.is_latest:
            rows.add(change.cause, record, change.key, sent(change.record, change.new))
        for asked in self._subscribing.subscribe(change, versioned=versioned):
            ask = asked.ask.value.encode()
            message = sent(change.record, asked.primary_key, asked.mark, ask)
            asks.add(change.cause, record, asked.foreign_key, message)


@dataclass(frozen=True)
class AnswerStep:
    """The stage of the right rows: it keeps the subscriptions, and sends the answers."""

    name: str
    right: Step

    def open(self, state: TaskState) -> _Answers:
        """Open the stage over the state of a task."""
        return _Answers(state, self)


class _Answers(Running):
    def __init__(self, state: TaskState, step: AnswerStep) -> None:
        self._state = state
        self._right = step.right.open(state)
        self._right.make_readable()
        self._answering = Answering(state, step.name)

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        rows, answers = Collected(ROW_SENT), Collected(ANSWER_SENT)
        with in_order(enumerate(arrivals)) as numbered:
            for cause, arrival in numbered:
                if arrival.input == -LEFT_ROW:
                    record = arrival.record
                    rows.add(cause, record, record.key, record.value)
                    continue
                for answer in self._answers(cause, arrival):
                    record = answer.record._replace(timestamp_ms=answer.timestamp_ms)
                    message = sent(answer.record, answer.mark, answer.foreign_value)
                    answers.add(cause, record, answer.primary_key, message)
        return [rows.results(), answers.results()]

    def _answers(self, cause: int, arrival: Arrival) -> list[Answer]:
        if arrival.input == -ASK:
            return self._answering.ask(_subscription(cause, arrival.record), self._right)
        return [
            answer
            for change in self._right.take(cause, arrival)
            for answer in self._answering.update(change, versioned=self._right.versioned)
        ]


def _subscription(cause: int, record: Record) -> Subscription:
    (primary_key, mark, ask), origin = received(record)
    assert primary_key is not None
    assert ask is not None
    return Subscription(
        cause, record.key, primary_key, mark, Ask(ask.decode()), record.timestamp_ms, origin
    )


@dataclass(frozen=True)
class AnsweredStep:
    """The stage of the left keys: it joins answers to the rows that asked."""

    name: str
    foreign: ForeignKeyStep

    @property
    def join(self) -> str:
        """Inner or left."""
        return self.foreign.join

    def open(self, state: TaskState) -> Table:
        """Open the result of the join, a table like any other."""
        return _Answered(state, self)


class _Answered(StoredTable):
    def __init__(self, state: TaskState, step: AnsweredStep) -> None:
        super().__init__(state, step.name, None)
        self._rows = PlainStore(state, f"{step.name}:left")
        self._resolving = Resolving(state, step.name, step.foreign.joiner, step.foreign.join)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Keep a row, or join an answer to the row that asked."""
        number, record = arrival
        if number == -ROW:
            assert record.key is not None
            (value,) = received(record).parts
            self._rows.put(record.key, value, record.timestamp_ms)
            self._resolving.changed(record.key)
        elif number == -ANSWER:
            assert record.key is not None
            (mark, foreign_value), origin = received(record)
            answer = Answer(cause, record.key, mark, foreign_value, record.timestamp_ms, origin)
            result = self._resolving.resolve(answer, self._rows)
            return () if result is None else self._accept(result)
        return ()

    def versioned_stores(self) -> list[VersionedStore]:
        """Return none: its rows are the latest."""
        return []


@dataclass(frozen=True)
class PartStep:
    """The stage of the rows: it turns each change into changes within groups."""

    name: str
    parent: Step
    aggregate: AggregateStep

    def open(self, state: TaskState) -> _Parts:
        """Open the stage over the state of a task."""
        return _Parts(state, self)


class _Parts(Running):
    def __init__(self, state: TaskState, step: PartStep) -> None:
        self._state = state
        self._parent = step.parent.open(state)
        self._parent.send_old(force=True)
        self._regrouping = Regrouping(state, step.name, step.aggregate.regroup)

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        parts = Collected(PART_SENT)
        with in_order(enumerate(arrivals)) as numbered:
            for cause, arrival in numbered:
                for change in self._parent.take(cause, arrival):
                    for part in self._regrouping.split(change, versioned=self._parent.versioned):
                        record = part.record._replace(timestamp_ms=part.timestamp_ms)
                        message = sent(part.record, part.old, part.new, change.key)
                        parts.add(cause, record, part.key, message)
        return [parts.results()]


@dataclass(frozen=True)
class FoldedStep:
    """The stage of the groups: it keeps their aggregates."""

    name: str
    aggregate: AggregateStep

    def open(self, state: TaskState) -> Table:
        """Open the aggregates, a table like any other."""
        storage = self.aggregate.storage or Plain()
        return _Folded(state, self.name, self.aggregate.aggregation, storage)


class _Folded(Folding):
    """A group treats a row whose change failed there as unchanged.

    The row's next change has an old value that was never added, or none although one is still
    counted here. So the stage remembers the value that is counted, and takes it for the old value
    then.
    """

    def __init__(
        self, state: TaskState, name: str, aggregation: Aggregation, storage: Storage
    ) -> None:
        super().__init__(state, name, aggregation, storage)
        self._standing = Standing(state, name)
        state.when_forgone(self._forgo)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Fold a change within a group."""
        if arrival.input != -PART:
            return ()
        group, row, change = _part(cause, arrival.record)
        change = change._replace(old=self._standing.pop(group, row, change.old))
        if change.old is None and change.new is None:
            return ()
        return self.fold(change)

    def _forgo(self, arrival: Arrival) -> None:
        if arrival.input == -PART:
            group, row, change = _part(0, arrival.record)
            self._standing.put(group, row, self._standing.pop(group, row, change.old))


def _part(cause: int, record: Record) -> tuple[bytes, bytes, Change]:
    """Return the group, the row and the change of a part."""
    (old, new, row), origin = received(record)
    group = record.key
    assert group is not None
    assert row is not None
    change = Change(cause, group, new, old, record.timestamp_ms, is_latest=True, record=origin)
    return group, row, change
