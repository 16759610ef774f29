"""The answers for a pipeline whose graces, intervals and limits changed while nobody ran it.

All workers stop, and so the group's offsets say which records the old options met. The state goes
on under the new ones (`services/state/stamps.py`). Most results stay determined, and are judged
record by record. These do not:

    a longer interval           an id that was over may be known or forgotten. The oracle looks
                                whether the record left, and goes on from there
    a longer grace of windows   a window that was closed may go on, or begin anew. Its results, and
                                late records near it, are left out from then on, on both sides
    any longer wait             a record may be earlier than what was promised before. A promise
                                binds the records that its own options have met, or older ones
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DistinctPolicy,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
)
from headrace.contracts.record import NO_TIME_MS, Record, offset_of
from headrace.contracts.window import window_of
from tests.kill import state
from tests.kill.expected import Answer, Leaving, itself
from tests.kill.readings import Readings, Topic
from tests.kill.spread import number_of
from tests.kill.stream import POISON_MS
from tests.properties.compose import (
    Later,
    expected_of,
    expected_of_chain,
    wait_ms_of,
    waits_of,
)

Place = tuple[str, int]
Numbers = frozenset[bytes | None]


class Life(NamedTuple):
    """Options, and the first offset that meets them, by topic and partition."""

    spec: PipelineSpec
    firsts: Mapping[Place, int]


Lives = Sequence[Life]


class Reopened(NamedTuple):
    """Windows that were closed, and that a longer grace may open again."""

    numbers: Numbers
    """Of the records that came since."""
    through_ms: int
    """Stream time was past them by the shorter grace."""
    window: Window
    are_late_told: bool
    """Whether records that come too late for a window go to the late topic."""

    def has(self, record: Record | Leaving) -> bool:
        """Whether nobody can say what must become of a result, or of a late record."""
        if number_of(record) not in self.numbers:
            return False
        bounds = window_of(record.headers)
        if bounds is None:
            near_ms = self.through_ms + 1 + _span_ms(self.window)
            return self.are_late_told and record.timestamp_ms <= near_ms
        if isinstance(self.window, Tumbling | Hopping):
            return bounds.end_ms <= self.through_ms
        # A session, or a sliding window, may begin otherwise where one before it is forgotten.
        return bounds.start_ms <= self.through_ms + 1


class LivedAnswer(NamedTuple):
    """An answer, and what is left out of it."""

    answer: Answer
    reopened: list[Reopened]

    def judged(self, records: Sequence[Record]) -> list[Record]:
        """The records of a topic that the answer speaks of."""
        return [one for one in records if not any(some.has(one) for some in self.reopened)]


def lived_answer(
    lives: Lives, number: int, source: Sequence[Record], left: Numbers = frozenset()
) -> LivedAnswer:
    """The answer for a partition of the hop of this number; `left` are numbers of what left it."""
    hop = lives[0].spec.hops()[number]
    taken = [one for one in source if not (hop.is_first and one.timestamp_ms >= POISON_MS)]
    dead = [itself(one) for one in source if hop.is_first and one.timestamp_ms >= POISON_MS]
    later = later_of(lives, number, taken)
    expected = expected_of_chain(
        hop.operators, taken, later, lambda record: number_of(record) in left
    )
    assert not expected.dead, "no pipeline here gives up records behind the door"
    assert expected.failure is None, "no pipeline here may fail"
    reopened = list(_reopened(hop.operators, taken, later))

    def is_told(one: Leaving) -> bool:
        return not any(some.has(one) for some in reopened)

    cleaned = [Leaving(*output[1:5], taken[output.cause]) for output in expected.outputs]
    late = [itself(taken[cause]) for cause in expected.late]
    answer = Answer(list(filter(is_told, cleaned)), list(filter(is_told, late)), dead)
    return LivedAnswer(answer, reopened)


def later_of(lives: Lives, number: int, taken: Sequence[Record]) -> list[Later]:
    """The operators of the later lives, each with the first of these records that meets them."""
    if not taken:
        return []
    place = taken[0].topic, taken[0].partition
    offsets = [offset_of(one) for one in taken]
    return [
        Later(bisect_left(offsets, life.firsts.get(place, 0)), life.spec.hops()[number].operators)
        for life in lives[1:]
    ]


def late_offsets(lives: Lives, taken: Sequence[Record]) -> set[int]:
    """The source offsets of records that are late at the first operator."""
    later = [(one.first, one.policies[0]) for one in later_of(lives, 0, taken)]
    first = lives[0].spec.operators[0]
    waits_ms = waits_of(first, later, range(len(taken)))
    return {offset_of(taken[cause]) for cause in expected_of(first, taken, None, waits_ms).late}


def longer_from(lives: Lives, place: Place) -> list[int]:
    """The offsets of a partition from which on some operator waits longer than before."""
    return [
        life.firsts.get(place, 0)
        for before, life in pairwise(lives)
        if any(
            wait_ms_of(now) > wait_ms_of(then)
            for then, now in zip(before.spec.operators, life.spec.operators, strict=True)
        )
    ]


def numbers_that_left(readings: Readings, topics: Collection[str], partition: int) -> Numbers:
    """The numbers of all records in a partition of these topics."""
    return frozenset(
        number_of(one) for topic in topics for one in readings.records(topic, partition)
    )


def lived_answers(
    lives: Lives, readings: Readings, partitions: int
) -> dict[tuple[str, int], LivedAnswer]:
    """The answers by hop and partition, and what is left out of each."""
    spec = lives[0].spec
    topics = (spec.sink.topic, spec.late.topic)
    return {
        (hop.name, partition): lived_answer(
            lives,
            number,
            readings.records(hop.topic, partition),
            numbers_that_left(readings, topics, partition),
        )
        for number, hop in enumerate(spec.hops())
        for partition in range(partitions)
    }


def judged_readings(
    readings: Readings, hop: Hop, answers: Mapping[tuple[str, int], LivedAnswer], spec: PipelineSpec
) -> Readings:
    """The readings without what nobody can judge."""
    topics = dict(readings.topics)
    for name in (spec.sink.topic, spec.late.topic):
        if (topic := topics.get(name)) is not None:
            kept = {
                partition: answers[hop.name, partition].judged(records)
                for partition, records in topic.committed.items()
            }
            topics[name] = Topic(kept, topic.uncommitted)
    return Readings(topics, readings.others)


def going_on_problems(
    lives: Lives,
    states: Sequence[state.PartitionStates],
    readings: Readings,
) -> Iterator[str]:
    """How operators over the states that were read differ from the oracle, from there on."""
    spec = lives[-1].spec
    for one in states:
        partition, source = one.partition, readings.as_sent(one.hop.topic, one.partition)
        before = [record for record in source if offset_of(record) < one.position]
        gone = numbers_that_left(readings, (spec.sink.topic, spec.late.topic), partition)
        gone &= {number_of(record) for record in before}
        for name, store in one.stores.items():
            step = state.go_on(spec, one, store, source)
            does = step.forwarded.records
            aside = [each.record for each in step.late]
            left = gone | {number_of(record) for record in (*does, *aside)}
            lived = lived_answer(lives, 0, source, left)
            must = [
                each[:4] for each in lived.answer.cleaned if offset_of(each.cause) >= one.position
            ]
            problem = state.going_on_problem(name, [each[:4] for each in lived.judged(does)], must)
            if problem is not None:
                yield f"{one.hop.name}/{partition}: {problem}"


def _reopened(
    policies: Sequence[AnyOperator], taken: Sequence[Record], later: Sequence[Later]
) -> Iterator[Reopened]:
    for number, policy in enumerate(policies):
        window = _window_of(policy)
        if window is None:
            continue
        came = _inputs(policies[:number], taken, later)
        told = getattr(policy, "late", None) == "topic"
        before_ms = wait_ms_of(policy)
        for first, changed in ((one.first, one.policies[number]) for one in later):
            if wait_ms_of(changed) > before_ms:
                times_ms = [one.timestamp_ms for cause, one in came if cause < first and one.key]
                through_ms = max(times_ms, default=NO_TIME_MS) - before_ms
                numbers = frozenset(number_of(one) for cause, one in came if cause >= first)
                yield Reopened(numbers, through_ms, window, told)
            before_ms = wait_ms_of(changed)


def _inputs(
    policies: Sequence[AnyOperator], taken: Sequence[Record], later: Sequence[Later]
) -> list[tuple[int, Record]]:
    """The records that leave these operators for the next one, each with the one that caused it."""
    if not policies:
        return list(enumerate(taken))
    outputs = expected_of_chain(policies, taken, later).outputs
    return [
        (output.cause, Record(*output[1:5], taken[output.cause].topic, 0, None))
        for output in outputs
    ]


def _window_of(policy: AnyOperator) -> Window | None:
    return policy.window if isinstance(policy, AggregatePolicy | DistinctPolicy) else None


def _span_ms(window: Window) -> int:
    match window:
        case Session():
            return window.gap_ms
        case Sliding():
            return window.difference_ms
        case Tumbling() | Hopping():
            return window.size_ms
        case _:
            return 0
