"""Lanes that are told of runs are as far at each record as those that each record tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.origin import (
    AT_END,
    AWAKE,
    IDLE,
    SourceTime,
    origin_header,
    run_headers,
    times_headers,
)
from headrace.contracts.record import Record
from headrace.services.operators.lanes import Bound, Lanes
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.properties.lanes import PLACE, says
from tests.properties.strategies import MORE, chance, seeds


class Said(NamedTuple):
    """A source partition speaks to a place: with a run of records, or with a state alone."""

    partition: int
    times_ms: list[int]
    state: int


class Heard(NamedTuple):
    """A record, and how far lanes are with it."""

    origin: tuple[int, int]
    """Source partition, and its time."""
    before: Bound
    after: Bound
    is_behind: bool


@st.composite
def words(draw: st.DrawFn) -> list[Said]:
    """Few times, so that partitions are often level; one in a few runs is out of order."""
    luck = chance(draw(seeds))
    return [_word(luck, at) for at in range(draw(st.integers(0, 12)))]


def _word(luck: Random, at: int) -> Said:
    partition, state = luck.randrange(3), luck.choice((AWAKE, AWAKE, IDLE, AT_END))
    times_ms = [at // 2 + luck.randrange(4) for _ in range(luck.randrange(6))]
    if luck.random() < 3 / 4:
        times_ms.sort()
    return Said(partition, times_ms or [at], AWAKE if times_ms else state)


def _place(words: Sequence[Said], *, by_runs: bool) -> Iterator[Record]:
    for partition, times_ms, state in words:
        if state != AWAKE:
            yield says([(partition, times_ms[0])], state=state)
            continue
        origins = [(partition, at, time_ms) for at, time_ms in enumerate(times_ms)]
        records = [Record(b"k", b"v", time_ms, (), PLACE, 0, None) for time_ms in times_ms]
        if by_runs:
            yield Record(None, None, 0, run_headers(origins), PLACE, 0, None)
            yield from records
        else:
            for record, origin in zip(records, origins, strict=True):
                yield record._replace(headers=(origin_header(*origin),))


def _lanes(expected: int) -> Lanes:
    return Lanes(Overlay(MemoryStore(), "lanes").view(ABOUT), range(expected))


def _hear(lanes: Lanes, records: list[Record]) -> Iterator[Heard]:
    batch = lanes.take(Batch.of(records))
    assert batch.origins is not None
    origins = zip(batch.origins.lanes, batch.origins.times_ms, strict=True)
    for record, cause, origin in zip(batch.records, batch.causes, origins, strict=True):
        assert record.headers == ()
        bounds = lanes.bound_before(cause), lanes.bound_at(cause)
        yield Heard(origin, *bounds, cause in lanes.behind)


@MORE
@given(words(), st.integers(0, 3), seeds)
def test_a_run_says_what_its_records_would(words: list[Said], expected: int, seed: int) -> None:
    alone, by_runs, luck = _lanes(expected), _lanes(expected), chance(seed)
    left, heard = list(_place(words, by_runs=True)), []
    while left:
        # Cut anywhere, within a run as well.
        count = luck.choice((1, 2, 5, 100))
        heard += list(_hear(by_runs, left[:count]))
        left = left[count:]
    assert heard == list(_hear(alone, list(_place(words, by_runs=False))))
    for name in ("bound", "times_ms", "states", "latest_ms"):
        assert getattr(by_runs, name) == getattr(alone, name), name


@given(words(), seeds)
def test_a_reader_that_begins_within_a_run_has_skipped_what_was_said_of_it(
    words: list[Said], seed: int
) -> None:
    place = list(_place(words, by_runs=True))
    at = chance(seed).randint(0, len(place))
    whole, later = _lanes(3), _lanes(3)
    expected = [origin for origin, *_ in _hear(whole, place)]
    came = sum(record.key is not None for record in place[:at])
    later.skip(place[:at])
    assert [origin for origin, *_ in _hear(later, place[at:])] == expected[came:]


@MORE
@given(words(), st.integers(0, 3), seeds)
def test_a_row_says_of_several_partitions_what_rows_of_each_would(
    before: list[Said], expected: int, seed: int
) -> None:
    together, each, luck = _lanes(expected), _lanes(expected), chance(seed)
    for lanes in (together, each):
        list(_hear(lanes, list(_place(before, by_runs=True))))
    times = [
        SourceTime(lane, luck.randrange(12), luck.choice((AWAKE, IDLE, AT_END)))
        for lane in luck.sample(range(4), luck.randint(1, 4))
    ]
    together.take(Batch.of([row_of(times)]))
    each.take(Batch.of([row_of([time]) for time in times]))
    for name in ("times_ms", "states", "latest_ms"):
        assert getattr(together, name) == getattr(each, name), name
    # A bound never goes back, so one that moved in between is at least as far.
    assert together.bound <= each.bound
    assert together.bound >= together.bound_before(0)


@MORE
@given(words(), st.integers(0, 3), seeds)
def test_lanes_go_on_from_what_they_saved(words: list[Said], expected: int, seed: int) -> None:
    luck, view = chance(seed), Overlay(MemoryStore(), "lanes").view(ABOUT)
    whole, restarted = _lanes(expected), Lanes(view, range(expected))
    for word in words:
        # A record that left before its time is later than what is told of its partition.
        records = [
            one
            if one.key is None
            else one._replace(timestamp_ms=one.timestamp_ms + luck.choice((0, 0, 5)))
            for one in _place([word], by_runs=True)
        ]
        assert list(_hear(restarted, records)) == list(_hear(whole, records))
        if luck.random() < 1 / 2:
            restarted.save()
            restarted = Lanes(view)
        for name in ("bound", "times_ms", "states", "latest_ms"):
            assert getattr(restarted, name) == getattr(whole, name), name


def row_of(times: list[SourceTime]) -> Record:
    return Record(None, None, 0, times_headers(times), PLACE, 0, None)


def test_lanes_that_are_all_idle_stay_so_behind_a_record_that_says_no_origin() -> None:
    """`headrace replay-dead` puts such records back into a repartition topic."""
    lanes = _lanes(2)
    put_back = Record(b"k", b"v", 3, (("headrace.replays", b"1"),), PLACE, 0, None)
    lanes.take(Batch.of([put_back, says([(0, 5)], state=IDLE)]))
    assert not lanes.are_all_idle
    lanes.take(Batch.of([says([(1, 7)], state=IDLE)]))
    assert lanes.are_all_idle
    lanes.take(Batch.of([put_back]))
    assert lanes.are_all_idle
