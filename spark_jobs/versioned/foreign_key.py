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

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from headrace.spark_jobs.versioned.answering import (
    Answer,
    Answering,
    Ask,
    Readable,
    Subscription,
)
from headrace.spark_jobs.versioned.changes import Change, Changes
from headrace.spark_jobs.versioned.functions import as_value, of_step, of_step_for_all
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.versioned.state import MERGED
from headrace.spark_jobs.versioned.tables import StoredTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.history import VersionedStore
    from headrace.spark_jobs.versioned.records import Integers, Objects
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.table_table import Joiner

MARK_BYTES = 16


class Subscriptions(NamedTuple):
    """Subscriptions in columns."""

    places: Integers
    """Which of the changes each belongs to."""
    foreign_keys: Objects
    marks: Objects
    asks: Sequence[Ask]


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
        self._foreign_keys_of = of_step_for_all(name, foreign_key_of, as_value)
        self._left = join == "left"

    def subscribe(self, change: Change, *, versioned: bool) -> list[Subscription]:
        """Return the subscriptions that a left change makes and ends, in order."""
        self._state.count(f"{self._name}:taken")
        if versioned and not change.is_latest:
            self._state.count(f"{self._name}:dropped:out-of-order")
            return []
        cause, key, new, old, time_ms, _, record = change
        of_old = None if old is None else self._foreign_key_of(key, old)
        of_new = None if new is None else self._foreign_key_of(key, new)
        return [
            Subscription(cause, foreign, key, mark, ask, time_ms, record)
            for _, foreign, mark, ask in self._made([old], [new], [of_old], [of_new])
        ]

    def subscribe_all(self, changes: Changes, *, versioned: bool) -> Subscriptions:
        """Return the subscriptions that left changes make and end, in order."""
        size = len(changes.causes)
        places = np.flatnonzero(changes.are_latest) if versioned else np.arange(size)
        self._state.count(f"{self._name}:taken", size)
        self._state.count(f"{self._name}:dropped:out-of-order", size - len(places))
        columns = (changes.causes, changes.keys, changes.olds, changes.news)
        causes, keys, olds, news = (column[places].tolist() for column in columns)
        of_olds, of_news = (self._foreign_keys(causes, keys, values) for values in (olds, news))
        made = self._made(olds, news, of_olds, of_news)
        ats, foreign_keys, marks, asks = zip(*made, strict=True) if made else [()] * 4
        of_changes = places[np.array(ats, np.intp)]
        return Subscriptions(of_changes, objects(foreign_keys), objects(marks), asks)

    def _made(
        self,
        olds: list[bytes | None],
        news: list[bytes | None],
        of_olds: list[bytes | None],
        of_news: list[bytes | None],
    ) -> list[tuple[int, bytes | None, bytes | None, Ask]]:
        """Return change, foreign key, mark and request of each subscription.

        `of_olds` and `of_news` are the foreign keys in old and in new values.
        """
        made: list[tuple[int, bytes | None, bytes | None, Ask]] = []
        keyless = 0
        asks_of = _left_asks if self._left else _inner_asks
        columns = zip(olds, news, of_olds, of_news, strict=True)
        for at, (old, new, old_key, new_key) in enumerate(columns):
            if new is None:
                if old is None:
                    continue
                mark = None
            else:
                mark = mark_of(new)
                keyless += new_key is None and not self._left
            for key, ask in asks_of(old_key, new_key):
                made.append((at, key, mark, ask))
        self._state.count(f"{self._name}:dropped:null-foreign-key", keyless)
        self._state.count(f"{self._name}:passed", len(news) - keyless)
        return made

    def _foreign_keys(
        self, causes: list[int], keys: list[bytes], values: list[bytes | None]
    ) -> list[bytes | None]:
        """Return the foreign key in each value, None where there is no value."""
        present = [at for at, value in enumerate(values) if value is not None]
        pairs = ((keys[at], values[at]) for at in present)
        answers = self._foreign_keys_of([causes[at] for at in present], pairs)
        found: list[bytes | None] = [None] * len(values)
        for at, answer in zip(present, answers, strict=True):
            found[at] = answer
        return found


class Resolving:
    """At the left table again: joins answers to the left values that asked for them."""

    def __init__(
        self,
        state: TaskState,
        name: str,
        joiner: Joiner,
        join: Literal["inner", "left"],
        *,
        last_alone: bool = False,
    ) -> None:
        self._state = state
        self._name = name
        self._last_alone = last_alone
        self._join_all = of_step_for_all(name, joiner, as_value)
        self._left = join == "left"
        self._unanswered = set(state.notes.get(name, ()))
        state.add(self)

    def changed(self, keys: Iterable[bytes]) -> None:
        """Note that left rows changed, of which the answers are still to come."""
        self._unanswered.update(keys)

    def resolve(self, answer: Answer, left: Readable) -> Change | None:
        """Return the result, None where the answer is stale."""
        cause, key, mark, foreign_value, time_ms, record = answer
        version = left.latest(key)
        asked = [None if version is None else version.value]
        places, news = self.resolve_all([cause], [key], [mark], [foreign_value], asked)
        if not places:
            return None
        return Change(cause, key, news[0], None, time_ms, is_latest=True, record=record)

    def resolve_all(
        self,
        causes: Sequence[int],
        keys: Sequence[bytes],
        marks: Sequence[bytes | None],
        foreign_values: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> tuple[list[int], list[bytes | None]]:
        """Join answers to the latest left values; return which are not stale, and the results."""
        places: list[int] = []
        to_join: list[int] = []
        for at, (key, mark, foreign_value, value) in enumerate(
            zip(keys, marks, foreign_values, values, strict=True)
        ):
            is_stale = mark != (None if value is None else mark_of(value))
            missing = foreign_value is None and not self._left
            # The latest value gets no answer if it has no right row. Then its result goes by this.
            if is_stale and not (missing and key in self._unanswered):
                continue
            self._unanswered.discard(key)
            places.append(at)
            if not (is_stale or missing or value is None):
                to_join.append(at)
        self._state.count(f"{self._name}:answers:dropped:stale", len(keys) - len(places))
        if self._last_alone:
            lasts = {keys[at]: at for at in places}
            self._state.count(MERGED, len(places) - len(lasts))
            places = sorted(lasts.values())
            to_join = [at for at in to_join if lasts[keys[at]] == at]
        pairs = ((values[at], foreign_values[at]) for at in to_join)
        joined = self._join_all([causes[at] for at in to_join], pairs)
        results = dict(zip(to_join, joined, strict=True))
        return places, [*map(results.get, places)]

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


def _left_asks(old: bytes | None, new: bytes | None) -> list[tuple[bytes | None, Ask]]:
    # A row without a foreign key asks too, since it has a result: itself joined with nothing.
    if old is None or old == new:
        return [(new, Ask.ALWAYS)]
    return [(old, Ask.FORGET), (new, Ask.ALWAYS)]


def mark_of(value: bytes) -> bytes:
    """Make a mark that tells left values apart without sending them."""
    return blake2b(value, digest_size=MARK_BYTES).digest()
