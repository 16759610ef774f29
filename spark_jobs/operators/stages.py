"""The foreign-key join in stages: its left rows live in one task and meet right rows in another.

    left -> Ask --asks--> Answer --answers--> Answered -> result
             |   right ---^   ^                ^
             `----- rows -----+----------------'

Each stage is a processor of its own. Left rows travel with their asks, so that no stage runs twice.
The second stage hands them on in their bundles, which it does not open: the right table may be the
result of another such join, which takes its own rows there. In each batch they come before the
answers. An answer to a row that was replaced in the same batch has another mark than the row, and
is dropped, as in Kafka Streams. So of two changes of a key within one batch, the result may show
only the last one. By `inner` an answer without a right row deletes the result even so, since the
last change gets no answer if it has no right row either.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headrace.spark_jobs.operators.columns import ANSWER, ASK, ROW
from headrace.spark_jobs.operators.messages import (
    Received,
    handed_on,
    origin_of,
    received,
    sent_all,
)
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.running import Running
from headrace.spark_jobs.operators.topology import ForeignKeyStep, Step, TableStep
from headrace.spark_jobs.operators.updates import merged
from headrace.spark_jobs.versioned.answering import Answer, Answering, Ask, Asks
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals, in_order, observe_lateness
from headrace.spark_jobs.versioned.changes import Change, Changes, LatestAtOnce, all_changes
from headrace.spark_jobs.versioned.foreign_key import Resolving, Subscribing, Subscriptions
from headrace.spark_jobs.versioned.history import PlainStore, Version, VersionedStore
from headrace.spark_jobs.versioned.meeting import Keys, Side
from headrace.spark_jobs.versioned.records import Records, are_present, objects
from headrace.spark_jobs.versioned.replacing import Latest
from headrace.spark_jobs.versioned.tables import StoredTable, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spark_jobs.versioned.changes import Updates
    from headrace.spark_jobs.versioned.records import Objects
    from headrace.spark_jobs.versioned.state import TaskState

ROW_SENT, ASK_SENT, ANSWER_SENT = "row", "ask", "answer"
"""Verdicts of the messages from one stage to the next."""
_ASKS: dict[bytes | None, Ask] = {ask.word: ask for ask in Ask}


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
        self._updates = step.foreign.updates
        self._left = step.left.open(state)
        self._left.send_old(force=True)
        foreign = step.foreign
        self._subscribing = Subscribing(state, step.name, foreign.foreign_key_of, foreign.join)

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        changes = all_changes(self._left, arrivals)
        changes = merged(changes, self._updates, self._state)
        versioned = self._left.versioned
        made = self._subscribing.subscribe_all(changes, versioned=versioned)
        rows = changes.where(changes.are_latest) if versioned else changes
        return [_left_rows(rows), _asks(changes.where(made.places), made)]


def _left_rows(rows: Changes) -> Results:
    return Results.of(ROW_SENT, rows)._replace(values=sent_all(rows.records, rows.news))


def _asks(changes: Changes, made: Subscriptions) -> Results:
    """Return the asks, each beside its change."""
    asks = [ask.word for ask in made.asks]
    messages = sent_all(changes.records, changes.keys, made.marks, asks)
    return Results.of(ASK_SENT, changes)._replace(keys=made.foreign_keys, values=messages)


@dataclass(frozen=True)
class AnswerStep:
    """The stage of the right rows: it keeps the subscriptions, and sends the answers."""

    name: str
    right: Step
    updates: Updates = "each"

    def open(self, state: TaskState) -> _Answers:
        """Open the stage over the state of a task."""
        return _Answers(state, self)


class _Answers(Running):
    def __init__(self, state: TaskState, step: AnswerStep) -> None:
        self._state = state
        self._updates = step.updates
        self._right = step.right.open(state)
        self._right.make_readable()
        self._answering = Answering(state, step.name)

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        return [self._answers(arrivals)]

    def _answers(self, arrivals: Arrivals) -> Results:
        """Take asks and records of the right table in their order."""
        of_asks = np.flatnonzero(arrivals.inputs == -ASK)
        records = arrivals.records.take(of_asks)
        messages = Received(records, 3)
        primary_keys, marks, words = messages.parts()
        asks = Asks(
            of_asks,
            records.keys,
            objects(primary_keys),
            objects(marks),
            objects([_ASKS[word] for word in words]),
            records.times_ms,
        )
        changes, met = self._met(arrivals, asks)
        changes = merged(changes, self._updates, self._state)
        answered = self._answering.take_all(asks, met, changes, versioned=self._right.versioned)
        origins = [*messages.origins(), *map(origin_of, changes.records)]
        return Results(
            ANSWER_SENT,
            answered.causes,
            arrivals.records.take(answered.causes),
            answered.primary_keys,
            handed_on(objects(origins)[answered.sources], answered.marks, answered.foreign_values),
            answered.times_ms,
        )

    def _met(self, arrivals: Arrivals, asks: Asks) -> tuple[Changes, Latest]:
        """Let the right table take its records; return its changes, and what each ask met."""
        right = self._right
        if not isinstance(right, LatestAtOnce):
            return self._met_one_by_one(arrivals, asks)
        keys = Keys(arrivals)
        before = right.latest_all(keys.keys)
        changes = right.take_all(arrivals)
        latest = changes.where(changes.are_latest)
        keyed = np.flatnonzero(are_present(asks.foreign_keys))
        found = keys.as_of(Side(before, latest), asks.causes[keyed], "left")
        size = len(asks.causes)
        values, times_ms = np.full(size, None, object), np.zeros(size, np.int64)
        values[keyed], times_ms[keyed] = found
        return changes, Latest.of(values, times_ms)

    def _met_one_by_one(self, arrivals: Arrivals, asks: Asks) -> tuple[Changes, Latest]:
        changes: list[Change] = []
        met: list[Version | None] = []
        requests = iter(asks.asks.tolist())
        with in_order(enumerate(arrivals)) as numbered:
            for cause, arrival in numbered:
                key = arrival.record.key
                if arrival.input != -ASK:
                    changes += self._right.take(cause, arrival)
                elif next(requests) is Ask.FORGET or key is None:
                    met.append(None)
                else:
                    met.append(self._right.latest(key))
        values = objects([None if each is None else each.value for each in met])
        times_ms = [0 if each is None else each.valid_from_ms for each in met]
        return Changes.of(changes), Latest.of(values, np.array(times_ms, np.int64))


@dataclass(frozen=True)
class AnsweredStep(TableStep):
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
        foreign = step.foreign
        self._resolving = Resolving(
            state,
            step.name,
            foreign.joiner,
            foreign.join,
            last_alone=step.updates == "last",
        )

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Keep a row, or join an answer to the row that asked."""
        number, record = arrival
        if number == -ROW:
            assert record.key is not None
            (value,) = received(record).parts
            self._rows.put(record.key, value, record.timestamp_ms)
            self._resolving.changed([record.key])
        elif number == -ANSWER:
            assert record.key is not None
            (mark, foreign_value), origin = received(record)
            answer = Answer(cause, record.key, mark, foreign_value, record.timestamp_ms, origin)
            result = self._resolving.resolve(answer, self._rows)
            return () if result is None else self._accept(result)
        return ()

    def take_all(self, arrivals: Arrivals) -> Changes:
        """Do as `take` for many; rows and answers take turns where the order is given."""
        inputs = arrivals.inputs
        bounds = {0, *(np.flatnonzero(np.diff(inputs)) + 1).tolist(), len(inputs)}
        made: list[Changes] = []
        for start, end in pairwise(sorted(bounds)):
            records = arrivals.records[start:end]
            if inputs[start] == -ROW:
                self._keep(records)
            elif inputs[start] == -ANSWER:
                made.append(self._resolve(records, start))
        return Changes.together(made)

    def latest_all(self, keys: Objects) -> Latest:
        """Do as `latest` for many, beside `take_all`."""
        return self._readable().latest_all(keys)

    def _keep(self, rows: Records) -> None:
        (values,) = Received(rows, 1).parts()
        keys = rows.keys
        self._rows.put_all(keys, objects(values), rows.times_ms)
        self._resolving.changed(keys.tolist())

    def _resolve(self, answers: Records, first: int) -> Changes:
        messages = Received(answers, 2)
        keys = answers.keys
        marks, values = messages.parts()
        rows = self._rows.latest_all(keys).values.tolist()
        causes = range(first, first + len(keys))
        places, news = self._resolving.resolve_all(causes, keys.tolist(), marks, values, rows)
        at = np.array(places, np.intp)
        records = messages.records().take(at)
        changes = Changes.of_new(first + at, keys[at], objects(news), answers.times_ms[at], records)
        return self._accept_all(changes)

    def versioned_stores(self) -> list[VersionedStore]:
        """Return none: its rows are the latest."""
        return []
