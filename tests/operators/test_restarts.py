"""A service that comes back with another policy loses nothing, and says nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    Tumbling,
    Window,
)
from headrace.contracts.record import Record
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.weight import records_weight
from tests.operators.service import FAR_MS, Service, left, record
from tests.properties import strategies
from tests.properties.strategies import MORE

LAST = record(FAR_MS * 4, b"last")
BUFFERS = (
    BufferPolicy(),
    BufferPolicy(records=0, when_full="spill"),
    BufferPolicy(records=2, when_full="spill"),
    BufferPolicy(bytes=120, when_full="spill"),
    BufferPolicy(records=3, when_full="emit-early"),
    BufferPolicy(bytes=200, when_full="emit-early"),
)
buffers = st.sampled_from(BUFFERS)
reorders = st.tuples(strategies.positive_durations_ms, buffers).map(
    lambda drawn: ReorderPolicy(grace_ms=drawn[0], buffer=drawn[1])
)
suppresses = st.tuples(strategies.durations_ms, buffers).map(
    lambda drawn: SuppressPolicy(until="time-limit", limit_ms=drawn[0], buffer=drawn[1])
)
parts = st.lists(strategies.records(size_max=10), min_size=3, max_size=3)


@pytest.fixture(scope="module", autouse=True)
def _drop_often() -> Iterator[None]:
    """Released items are swept away after a few more, so that a sweep too many shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.operators.sweep.SWEEP_AFTER_ROWS", 3)
        yield


def lives(policies: Sequence[AnyOperator], inputs: list[list[Record]]) -> list[Record]:
    """All that leaves when each part of the input meets another policy, and then a far future."""
    service = Service(policies[0])
    gone: list[Record] = []
    for policy, part in zip(policies, inputs, strict=True):
        held = service.held
        service = service.restarted(policy)
        assert service.held == held, "a restart found more or less than was held"
        for first in range(0, len(part), 4):
            gone += left(service.take(*part[first : first + 4]))
    gone += left(service.take(LAST))
    assert service.held <= 1
    return gone


def told(inputs: list[list[Record]]) -> list[list[Record]]:
    """The same records, each with an offset of its own."""
    offsets = iter(range(1_000))
    return [[one._replace(offset=next(offsets)) for one in part] for part in inputs]


def test_a_weight_that_was_not_kept_for_a_while_is_weighed_anew() -> None:
    many = [record(1_000 + number, b"b") for number in range(10)]
    policies = [
        ReorderPolicy(grace_ms=grace_ms, buffer=buffer)
        for grace_ms, buffer in ((5_000, BUFFERS[3]), (1, BUFFERS[0]), (1, BUFFERS[5]))
    ]
    parts = [many, [record(FAR_MS, b"a")], []]
    assert len(lives(policies, parts)) >= len(many)


def test_a_new_bound_by_bytes_weighs_what_is_held_on_disk_alone_as_well() -> None:
    many = [record(1_000 + number, b"b") for number in range(10)]
    service = Service(ReorderPolicy(grace_ms=5_000))
    service.take(*many)
    spilling = BufferPolicy(records=4, bytes=200, when_full="spill")
    service = service.restarted(ReorderPolicy(grace_ms=5_000, buffer=spilling))
    (reorder,) = service.chain.operators
    assert isinstance(reorder, Reorder)
    assert reorder.held_bytes == records_weight(many)
    service.take(LAST)
    assert reorder.held_bytes == records_weight([LAST])


@MORE
@given(st.tuples(reorders, reorders, reorders), parts)
def test_reorder_with_another_grace_and_buffer_lets_go_of_each_record_once(
    policies: tuple[AnyOperator, ...], inputs: list[list[Record]]
) -> None:
    inputs = told(inputs)
    gone = Counter(one for one in lives(policies, inputs) if one != LAST)
    assert gone == Counter(one for part in inputs for one in part)


@MORE
@given(
    strategies.positive_durations_ms, st.permutations(BUFFERS[:4]).map(lambda few: few[:3]), parts
)
def test_reorder_that_spills_now_and_then_is_like_one_that_never_does(
    grace_ms: int, changing: list[BufferPolicy], inputs: list[list[Record]]
) -> None:
    plain = ReorderPolicy(grace_ms=grace_ms)
    spilling = [plain.model_copy(update={"buffer": buffer}) for buffer in changing]
    assert lives(spilling, inputs) == lives([plain] * 3, inputs)


@MORE
@given(st.tuples(suppresses, suppresses, suppresses), parts)
def test_suppress_with_another_limit_and_buffer_lets_go_of_each_update_at_most_once(
    policies: tuple[AnyOperator, ...], inputs: list[list[Record]]
) -> None:
    inputs = told(inputs)
    gone = [one for one in lives(policies, inputs) if one != LAST]
    assert max(Counter(gone).values(), default=1) == 1
    latest = {one.key: one for part in inputs for one in part if one.key is not None}
    # The last result of each key is its last update, however long each waited.
    assert {one.key: one for one in gone} == latest


@MORE
@given(strategies.durations_ms, st.permutations(BUFFERS[:4]).map(lambda few: few[:3]), parts)
def test_suppress_that_spills_now_and_then_is_like_one_that_never_does(
    limit_ms: int, changing: list[BufferPolicy], inputs: list[list[Record]]
) -> None:
    plain = SuppressPolicy(until="time-limit", limit_ms=limit_ms)
    spilling = [plain.model_copy(update={"buffer": buffer}) for buffer in changing]
    assert lives(spilling, inputs) == lives([plain] * 3, inputs)


def test_a_longer_grace_waits_longer_for_what_is_held_already() -> None:
    first = Service(ReorderPolicy(grace_ms=10))
    first.take(record(100), record(95))
    second = first.restarted(ReorderPolicy(grace_ms=50))
    assert left(second.take(record(120))) == []
    assert left(second.take(record(145))) == [record(95)]


def test_a_time_that_is_over_stays_over_with_a_longer_grace() -> None:
    first = Service(ReorderPolicy(grace_ms=10))
    first.take(record(80), record(100))
    second = first.restarted(ReorderPolicy(grace_ms=50))
    # 85 left already in time order, so 84 leaves at once: waiting would not bring it in front.
    assert left(second.take(record(84))) == [record(84)]
    assert left(second.take(record(95))) == []


def test_a_shorter_grace_lets_go_with_the_next_record() -> None:
    first = Service(ReorderPolicy(grace_ms=50))
    first.take(record(60), record(100))
    second = first.restarted(ReorderPolicy(grace_ms=10, late="topic"))
    assert left(second.take(record(100, b"z"))) == [record(60)]
    assert [aside.record for aside in second.take(record(89)).late] == [record(89)]


def test_with_a_shorter_grace_what_is_due_leaves_before_what_comes() -> None:
    first = Service(ReorderPolicy(grace_ms=50))
    first.take(record(60), record(100))
    second = first.restarted(ReorderPolicy(grace_ms=40))
    assert left(second.take(record(60, b"z"))) == [record(60), record(60, b"z")]


def test_grace_taken_away_and_given_back_keeps_what_is_held() -> None:
    first = Service(ReorderPolicy(grace_ms=50))
    first.take(record(60), record(100))
    without = first.restarted(ReorderPolicy(grace_ms=0))
    without.take(record(110))
    again = without.restarted(ReorderPolicy(grace_ms=50))
    assert left(again.take(LAST)) == [record(60), record(100)]


def test_a_longer_limit_waits_longer() -> None:
    first = Service(SuppressPolicy(until="time-limit", limit_ms=10))
    first.take(record(100, b"a"))
    second = first.restarted(SuppressPolicy(until="time-limit", limit_ms=50))
    assert left(second.take(record(149, b"b"))) == []
    assert left(second.take(record(150, b"b"))) == [record(100, b"a")]


def test_a_shorter_limit_lets_go_with_the_next_update() -> None:
    first = Service(SuppressPolicy(until="time-limit", limit_ms=50))
    first.take(record(100, b"a"), record(120, b"b"))
    second = first.restarted(SuppressPolicy(until="time-limit", limit_ms=10))
    assert left(second.take(record(121, b"c"))) == [record(100, b"a")]


@pytest.mark.parametrize(("before_ms", "after_ms"), [(10, 1_000), (1_000, 10), (10_000, 2_000)])
def test_an_id_within_both_intervals_is_known_under_the_new_one(
    before_ms: int, after_ms: int
) -> None:
    first = Service(DeduplicatePolicy(interval_ms=before_ms))
    first.take(record(5_000, offset=1))
    second = first.restarted(DeduplicatePolicy(interval_ms=after_ms))
    assert left(second.take(record(5_005, offset=2))) == []


@pytest.mark.parametrize(("before_ms", "after_ms"), [(1_000, 5_000), (5_000, 1_000)])
def test_a_window_of_another_size_is_another_window(before_ms: int, after_ms: int) -> None:
    window = Tumbling(size_ms=before_ms, grace_ms=10_000)
    first = Service(DistinctPolicy(window=window))
    first.take(record(7_000))
    wider = window.model_copy(update={"size_ms": after_ms})
    assert len(left(first.restarted(DistinctPolicy(window=wider)).take(record(7_001)))) == 1


WINDOWS: tuple[Window, ...] = (
    Tumbling(size_ms=1_000, grace_ms=0),
    Hopping(size_ms=1_000, advance_ms=500, grace_ms=0),
    Sliding(difference_ms=1_000, grace_ms=0),
    Session(gap_ms=1_000, grace_ms=0),
)


@pytest.mark.parametrize(
    "window", [window for window in WINDOWS if not isinstance(window, Session)], ids=str
)
@pytest.mark.parametrize(("before_ms", "after_ms"), [(0, 60_000), (60_000, 0)])
def test_an_aggregate_goes_on_with_another_grace(
    window: Window, before_ms: int, after_ms: int
) -> None:
    assert three_with(window, before_ms, after_ms) == three_with(window, after_ms, after_ms)


@pytest.mark.parametrize(("before_ms", "after_ms"), [(0, 60_000), (60_000, 0)])
def test_a_session_goes_on_with_another_grace(before_ms: int, after_ms: int) -> None:
    window = WINDOWS[-1]
    assert three_with(window, before_ms, after_ms) == three_with(window, after_ms, after_ms)


def three_with(window: Window, before_ms: int, after_ms: int) -> list[Record]:
    """Return the records that a third one releases, after two under another grace."""

    def policy(grace_ms: int) -> AggregatePolicy:
        graced = window.model_copy(update={"grace_ms": grace_ms})
        return AggregatePolicy(function="count", window=graced)

    first = Service(policy(before_ms))
    first.take(record(7_000), record(7_400))
    return left(first.restarted(policy(after_ms)).take(record(7_800)))
