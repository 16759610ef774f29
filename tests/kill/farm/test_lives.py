"""The judge goes by the options that a record met, and leaves out what nobody can say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import pytest

from headrace.contracts.pipeline import PipelineSpec, Sink, Source
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    FilterPolicy,
    ReorderPolicy,
    SamplePolicy,
    Tumbling,
)
from headrace.contracts.record import Record
from headrace.services.emit.asides import late_records
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.kill.compare import Difference
from tests.kill.farm.changes import changed, waits, with_operators
from tests.kill.farm.draw import draw
from tests.kill.farm.lives import Life, judged_readings, lived_answers, longer_from
from tests.kill.judge import judge
from tests.kill.pipelines import CLEANED, LATE, RAW
from tests.kill.readings import Readings, Topic
from tests.kill.stream import POISON_MS, Stream
from tests.operators.counting import sweep_often
from tests.properties.compose import HALF_OF_KEYS, wait_ms_of

__all__ = ["sweep_often"]
_PLACE = RAW, 0
_BATCH = 7


def _cases() -> list[tuple[int, str, PipelineSpec, PipelineSpec]]:
    """Pipelines of one hop, each with one change after another, longer and shorter ones."""
    found: dict[str, tuple[int, str, PipelineSpec, PipelineSpec]] = {}
    for seed in range(600):
        drawn = draw(seed, strikes=0)
        spec = drawn.case.spec
        if len(spec.hops()) > 1 or not waits(spec.operators):
            continue
        now = with_operators(spec, changed(random.Random(seed), spec.operators))
        kinds = [getattr(getattr(one, "window", None), "kind", "") for one in spec.operators]
        pairs = zip(spec.operators, now.operators, strict=True)
        ways = [(wait_ms_of(new) > wait_ms_of(old)) - (wait_ms_of(new) < wait_ms_of(old))
                for old, new in pairs]  # fmt: skip
        found.setdefault(f"{drawn.shape} {kinds} {ways}", (seed, drawn.shape, spec, now))
    return list(found.values())


CASES = _cases()
_EVERY = 3
_MORE = pytest.mark.long("kill", why="of each three pipelines one is judged in minutes")
SOME = [
    pytest.param(*one, id=f"{one[1]} {one[0]}", marks=() if at % _EVERY == 0 else _MORE)
    for at, one in enumerate(CASES)
]


def _taken(count: int, seed: int) -> list[Record]:
    portions = islice(Stream(RAW, 1, seed=seed).portions(40), count)
    records = [one for portion in portions for one in portion.records]
    believed = [one for one in records if one.timestamp_ms < POISON_MS]
    return [one._replace(offset=offset) for offset, one in enumerate(believed)]


def _written(records: Sequence[Record], topic: str) -> Topic:
    written = [one._replace(topic=topic, offset=at) for at, one in enumerate(records)]
    return Topic({0: written}, len(written))


def _lived(lives: Sequence[Life], source: Sequence[Record]) -> Readings:
    """The output of operators that were stopped and changed where each life begins."""
    store = MemoryStore()
    cleaned: list[Record] = []
    late: list[Record] = []
    ends = [life.firsts[_PLACE] for life in lives[1:]]
    for life, end in zip(lives, [*ends, len(source)], strict=True):
        (hop,) = life.spec.hops()
        overlay = Overlay(store, "p")
        chain = Chain(hop.operators, overlay.view)
        part = source[life.firsts.get(_PLACE, 0) : end]
        for at in range(0, len(part), _BATCH):
            step = chain.process(Batch.of(list(part[at : at + _BATCH])))
            cleaned += step.forwarded.records
            late += late_records(step.late)
            chain.save()
            overlay.commit({})
    topics = {RAW: Topic({0: list(source)}, len(source)), CLEANED: _written(cleaned, CLEANED)}
    return Readings(topics | {LATE: _written(late, LATE)}, [])


def _judged(lives: Sequence[Life], readings: Readings) -> Difference:
    spec = lives[0].spec
    (hop,) = spec.hops()
    lived = lived_answers(lives, readings, 1)
    answers = {place: one.answer for place, one in lived.items()}
    judged = judged_readings(readings, hop, lived, spec)
    return judge(spec, judged, answers, exactly_once=True)


@pytest.mark.parametrize(
    ("seed", "shape", "before", "now"), CASES, ids=[f"{one[1]} {one[0]}" for one in CASES]
)
def test_the_judge_agrees_with_operators_whose_options_changed(
    seed: int, shape: str, before: PipelineSpec, now: PipelineSpec
) -> None:
    source = _taken(12, seed)
    middle = len(source) // 3
    lives = [Life(before, {}), Life(now, {_PLACE: middle}), Life(before, {_PLACE: 2 * middle})]
    difference = _judged(lives, _lived(lives, source))
    assert difference.problems == [], shape
    assert difference.records


@pytest.mark.usefixtures("sweep_often")
@pytest.mark.parametrize(("seed", "shape", "before", "now"), SOME)
def test_it_agrees_with_operators_that_forget_what_is_over(
    seed: int, shape: str, before: PipelineSpec, now: PipelineSpec
) -> None:
    source = _taken(12, seed)
    lives = [Life(before, {}), Life(now, {_PLACE: len(source) // 2})]
    assert _judged(lives, _lived(lives, source)).problems == [], shape


def _spec(*operators: AnyOperator) -> PipelineSpec:
    source, sink = Source(topic=RAW), Sink(topic=CLEANED)
    return PipelineSpec(pipeline="farm", source=source, operators=operators, sink=sink)


def _at(timestamp_ms: int, key: bytes, offset: int) -> Record:
    return Record(key, b"1", timestamp_ms, (("n", b"%d" % offset),), RAW, 0, offset)


def _reordered(grace_ms: int) -> PipelineSpec:
    return _spec(ReorderPolicy(grace_ms=grace_ms, late="topic"))


def _deduplicated(interval_ms: int) -> PipelineSpec:
    return _spec(DeduplicatePolicy(by="key", interval_ms=interval_ms))


def _counted(grace_ms: int) -> PipelineSpec:
    window = Tumbling(size_ms=10, grace_ms=grace_ms)
    return _spec(AggregatePolicy(function="count", window=window))


@pytest.mark.parametrize(
    ("before", "now"),
    [(_reordered(10), _reordered(1_000)), (_deduplicated(100), _deduplicated(3_000))],
)
@pytest.mark.parametrize("first", [None, 60])
def test_a_change_that_came_earlier_or_never_is_found(
    before: PipelineSpec, now: PipelineSpec, first: int | None
) -> None:
    source = [_at(1_000 + 10 * at - 95 * (at % 3), b"%d" % (at % 5), at) for at in range(120)]
    judged = [Life(before, {}), *([Life(now, {_PLACE: first})] if first is not None else [])]
    readings = _lived([Life(before, {}), Life(now, {_PLACE: 70})], source)
    assert _judged([Life(before, {}), Life(now, {_PLACE: 70})], readings).problems == []
    assert _judged(judged, readings).problems


def test_an_id_that_a_shorter_interval_had_over_may_be_known_or_not() -> None:
    lives = [Life(_deduplicated(10), {}), Life(_deduplicated(1_000), {_PLACE: 2})]
    times_ms = (1_000, 1_100, 1_200, 1_300)
    one, other, again, third = (
        _at(at_ms, key, offset)
        for offset, (at_ms, key) in enumerate(zip(times_ms, (b"a", b"b", b"a", b"a"), strict=True))
    )
    source = [one, other, again, third]

    def problems(*left: Record) -> list[str]:
        topics = {RAW: Topic({0: source}, 4), CLEANED: _written(left, CLEANED)}
        return _judged(lives, Readings(topics, [])).problems

    assert problems(one, other) == []
    assert problems(one, other, again) == []
    assert problems(one, other, third) == []
    assert problems(one, other, again, third), "what left under the new interval is known"
    assert problems(other, again), "what left under the old one must be there"


def test_a_window_that_was_closed_is_left_out_once_its_grace_is_longer() -> None:
    source = [_at(at_ms, b"a", at) for at, at_ms in enumerate((5, 25, 6, 26))]
    lives = [Life(_counted(0), {}), Life(_counted(1_000), {_PLACE: 2})]
    whole = _lived(lives, source)
    assert _judged(lives, whole).problems == []
    assert len(whole.records(CLEANED, 0)) == 4

    def problems(without: int) -> list[str]:
        cleaned = [one for at, one in enumerate(whole.records(CLEANED, 0)) if at != without]
        return _judged(lives, Readings(whole.topics | {CLEANED: _written(cleaned, CLEANED)}, [])
        ).problems  # fmt: skip

    assert problems(without=2) == [], "the window of 0 to 10 ms was closed at the change"
    for counted in (0, 1, 3):
        assert problems(without=counted)


def test_it_is_known_where_an_operator_waits_longer() -> None:
    lives = [
        Life(_reordered(wait_ms), {_PLACE: first})
        for wait_ms, first in ((10, 0), (20, 5), (10, 8), (11, 9))
    ]
    assert longer_from(lives, _PLACE) == [5, 9]


@pytest.mark.parametrize("operator", [FilterPolicy(where=HALF_OF_KEYS), SamplePolicy(every=2)])
def test_it_agrees_with_operators_that_have_no_rows(operator: AnyOperator) -> None:
    source = _taken(12, seed=3)
    readings = _lived([Life(_spec(operator), {})], source)
    assert _judged([Life(_spec(operator), {})], readings).problems == []
    assert len(source) / 4 < len(readings.records(CLEANED, 0)) < len(source) * 3 / 4
    assert _judged([Life(_spec(operator), {})], Readings({RAW: readings.topics[RAW]}, [])).problems
