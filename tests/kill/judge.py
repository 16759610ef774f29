"""Whether everything that a run wrote is what the oracles say, given what stands in its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.contracts.dead_letter import INTAKE, read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from tests.kill.compare import Difference, compare
from tests.kill.expected import Answer, Leaving, answer_of
from tests.kill.readings import Readings
from tests.kill.spread import id_problems, order_problems

Answers = Mapping[tuple[str, int], Answer]
"""By hop's name and partition."""
_PROBLEMS_SHOWN = 5


def answers_of(spec: PipelineSpec, readings: Readings, partitions: int) -> Answers:
    """The oracles' answers; a hop's source is what really stands in its topic."""
    return {
        (hop.name, partition): answer_of(hop, readings.records(hop.topic, partition))
        for hop in spec.hops()
        for partition in range(partitions)
    }


def judge(
    spec: PipelineSpec, readings: Readings, answers: Answers, *, exactly_once: bool
) -> Difference:
    """All topics but the changelogs, which `state` judges."""
    whole = Difference()
    whole.problems += [f"topic `{name}` is none of the pipeline's" for name in readings.others]
    for hop in spec.hops():
        of_hop = {partition: one for (name, partition), one in answers.items() if name == hop.name}
        if hop.end is not None:
            _judge_between(spec, hop, of_hop, readings, whole)
        for partition, answer in of_hop.items():
            topics = _topics_of(spec, hop, answer)
            for topic, expected in topics.items():
                found = readings.records(topic, partition)
                if topic == spec.dead.topic:
                    found = list(_as_they_came(found, hop, whole))
                where = f"{topic}/{partition}"
                whole.add(compare(where, expected, found, repeats=not exactly_once))
    return whole


def _topics_of(spec: PipelineSpec, hop: Hop, answer: Answer) -> dict[str, Sequence[Leaving]]:
    """The expected contents of each topic that a partition of a hop writes alone."""
    topics: dict[str, Sequence[Leaving]] = {}
    if hop.end is None:
        topics[spec.sink.topic] = answer.cleaned
    if hop.is_first:
        topics |= {spec.late.topic: answer.late, spec.dead.topic: answer.dead}
    return topics


def _judge_between(
    spec: PipelineSpec,
    hop: Hop,
    answers: Mapping[int, Answer],
    readings: Readings,
    whole: Difference,
) -> None:
    """The topic between two hops, and what must hold of the cleaned topic whatever stands there."""
    assert hop.end is not None
    topic = hop.end.topic.name
    leaving = [one for answer in answers.values() for one in answer.cleaned]
    between = [one for part in answers for one in readings.records(topic, part)]
    whole.add(compare(topic, sorted(leaving, key=_place), sorted(between, key=_place)))
    cleaned = [one for part in answers for one in readings.records(spec.sink.topic, part)]
    for problems in (order_problems(leaving, between), id_problems(leaving, cleaned)):
        whole.problems += list(problems)[:_PROBLEMS_SHOWN]


def _place(record: Leaving | Record) -> tuple[int, str]:
    """An order that both sides of a comparison can be brought into."""
    return record.timestamp_ms, repr(record[:4])


def _as_they_came(dead: Sequence[Record], hop: Hop, whole: Difference) -> Iterator[Record]:
    """The records in dead letters, as they stood in the source."""
    for letter in map(read_dead, dead):
        if letter is None:
            whole.problems.append("a dead letter that cannot be read")
            continue
        if (letter.operator, letter.reason) != (INTAKE, Reason.FUTURE_TIMESTAMP):
            whole.problems.append(f"dead for another reason: {letter}")
        if letter.record.topic != hop.topic:
            whole.problems.append(f"dead at another place: {letter}")
        yield letter.record
