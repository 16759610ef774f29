"""How far a chain says it is: no further than it may, and as far as it can."""

from __future__ import annotations

import pytest

from headrace.contracts.origin import IDLE, origin_header
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    FilterPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.topology import with_names, with_windows
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.operators.progress import left_through_ms, progress_ms
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.properties.lanes import PLACE, says

REORDER = ReorderPolicy(grace_ms=10, idle_ms=1)
LIMIT = SuppressPolicy(until="time-limit", limit_ms=20)
FINAL = SuppressPolicy(until="window-closes")
DEDUPLICATE = DeduplicatePolicy(interval_ms=1_000)
EARLY = BufferPolicy(records=1, when_full="emit-early")


def count(window: Window | None) -> AggregatePolicy:
    return AggregatePolicy(function="count", window=window)


def chain_of(*policies: AnyOperator) -> tuple[tuple[AnyOperator, ...], Chain]:
    named = with_windows(with_names(policies))
    return named, Chain(named, Overlay(MemoryStore(), "pipeline").view)


def feed(chain: Chain, *times_ms: int) -> None:
    """Records of different keys, at these times."""
    records = [Record(b"%d" % at, b"1", at, (), "t", 0, index) for index, at in enumerate(times_ms)]
    chain.process(Batch.of(records))


@pytest.mark.parametrize(
    ("policies", "times_ms", "reached_ms"),
    [
        # No record waits: the progress is the latest time.
        ((DEDUPLICATE,), (100, 90), 100),
        ((TablePolicy(), FilterPolicy(where="value > 0")), (100, 90), 100),
        ((count(None),), (100,), 100),
        ((ReorderPolicy(grace_ms=0),), (100, 90), 100),
        # A reorder still takes what is late by its grace, and holds nothing earlier than that.
        ((REORDER,), (100,), 90),
        ((REORDER,), (95, 100), 90),
        ((REORDER, DEDUPLICATE), (100,), 90),
        ((REORDER, count(None)), (100,), 90),
        ((REORDER, ReorderPolicy(grace_ms=30, name="again", store="again")), (100, 150), 100),
        # A record that waits for a time limit leaves with its own time.
        ((LIMIT,), (100,), 100),
        ((LIMIT,), (100, 110), 100),
        ((LIMIT,), (100, 120), 120),
        ((REORDER, LIMIT), (100, 115), 100),
        ((REORDER, LIMIT), (100, 200), 100),
        ((REORDER, LIMIT), (100, 125, 200), 125),
        # A window's results have times in the window, until it is closed.
        ((count(Tumbling(size_ms=10, grace_ms=7)),), (100,), 83),
        ((count(Hopping(size_ms=10, advance_ms=5, grace_ms=7)),), (100,), 83),
        ((count(Sliding(difference_ms=10, grace_ms=7)),), (100,), 83),
        ((count(Session(gap_ms=10, grace_ms=7)),), (100,), 83),
        ((count(Unlimited()),), (100,), 100),
        ((REORDER, count(Tumbling(size_ms=10, grace_ms=7))), (100, 200), 190),
        ((REORDER, count(Session(gap_ms=10, grace_ms=7))), (100, 200), 83),
        ((count(Tumbling(size_ms=10, grace_ms=7)), FINAL), (100,), 83),
        ((REORDER, count(Tumbling(size_ms=10, grace_ms=7)), FINAL), (100, 200), 83),
    ],
)
def test_progress_follows_from_what_operators_wait_for(
    policies: tuple[AnyOperator, ...], times_ms: tuple[int, ...], reached_ms: int
) -> None:
    named, chain = chain_of(*policies)
    feed(chain, *times_ms)
    assert progress_ms(named, chain) == reached_ms


@pytest.mark.parametrize(
    ("policies", "times_ms", "left_ms"),
    [
        ((DEDUPLICATE,), (100, 90), 100),
        ((LIMIT,), (100,), 100),
        # A reorder holds records that have not left.
        ((REORDER,), (100,), 90),
        ((REORDER, DEDUPLICATE), (100, 150), 140),
        ((REORDER, ReorderPolicy(grace_ms=30, name="again", store="again")), (100, 150), 70),
        # A buffer that was full has let go of records before their time.
        ((ReorderPolicy(grace_ms=10, buffer=EARLY),), (100, 101), 101),
    ],
)
def test_how_far_records_have_left(
    policies: tuple[AnyOperator, ...], times_ms: tuple[int, ...], left_ms: int
) -> None:
    _, chain = chain_of(*policies)
    feed(chain, *times_ms)
    assert left_through_ms(chain) == left_ms


def test_a_silence_that_lets_go_of_everything_is_progress() -> None:
    named, chain = chain_of(REORDER)
    feed(chain, 95, 100)
    chain.release_idle()
    assert (progress_ms(named, chain), left_through_ms(chain)) == (100, 100)


def test_before_the_first_record_nothing_is_said() -> None:
    named, chain = chain_of(DEDUPLICATE)
    assert progress_ms(named, chain) == NO_TIME_MS


@pytest.mark.parametrize(
    "window", [Tumbling(size_ms=10, grace_ms=0), Session(gap_ms=10, grace_ms=0)]
)
def test_results_that_a_shorter_grace_makes_due_are_still_to_come(
    window: Tumbling | Session,
) -> None:
    def opened(grace_ms: int) -> tuple[tuple[AnyOperator, ...], Chain]:
        now = window.model_copy(update={"grace_ms": grace_ms})
        named = with_windows(with_names([count(now), FINAL]))
        return named, Chain(named, overlay.view)

    overlay = Overlay(MemoryStore(), "pipeline")
    _, chain = opened(100)
    feed(chain, 20, 90)
    chain.save()
    overlay.commit({})
    policies, chain = opened(5)
    promised_ms = progress_ms(policies, chain)
    left = chain.process(Batch.of([Record(b"b", b"1", 91, (), "t", 0, 2)])).forwarded.records
    assert [record.timestamp_ms for record in left] == [20]
    assert promised_ms <= 20
    assert progress_ms(policies, chain) > 20


@pytest.mark.parametrize(
    ("policies", "reached_ms"),
    [
        ((ReorderPolicy(grace_ms=160),), 845),
        ((count(Sliding(difference_ms=100, grace_ms=160)), FINAL), 745),
        ((count(Tumbling(size_ms=1, grace_ms=160)), FINAL), 844),
    ],
)
def test_progress_does_not_go_back_for_what_is_held_soon_behind_it(
    policies: tuple[AnyOperator, ...], reached_ms: int
) -> None:
    named, chain = chain_of(*policies)
    feed(chain, 1_005)
    assert progress_ms(named, chain) == reached_ms
    # Operators hold by slots of ten milliseconds, and this one's begins before 845.
    feed(chain, 847)
    assert progress_ms(named, chain) == reached_ms


def test_progress_behind_a_repartition_does_not_go_back_for_what_is_held_soon_behind_it() -> None:
    policies = with_names((ReorderPolicy(grace_ms=160),))
    view_of = Overlay(MemoryStore(), "pipeline").view
    chain = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT), range(2)))
    chain.process(Batch.of([says([(0, 1_005), (1, 1_005)])]))
    assert progress_ms(policies, chain) == 845
    held = Record(b"a", b"1", 847, (origin(0, 1_005),), PLACE, 0, 3)
    chain.process(Batch.of([held]))
    chain.save()
    assert progress_ms(policies, chain) == 845


def test_progress_behind_a_repartition_does_not_go_back_at_a_restart() -> None:
    policies = with_names((DeduplicatePolicy(by="id", id="key", interval_ms=1_000),))
    view_of = Overlay(MemoryStore(), "pipeline").view
    chain = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT), range(2)))
    chain.process(Batch.of([says([(1, 50)], state=IDLE), says([(0, 100)])]))
    # The second source partition is back, behind what readers were told meanwhile.
    chain.process(Batch.of([says([(1, 60)])]))
    assert progress_ms(policies, chain) == 100
    chain.save()
    again = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT)))
    assert progress_ms(policies, again) == 100


def test_an_id_that_left_before_its_time_is_known_behind_a_repartition_and_a_restart() -> None:
    policies = with_names((DeduplicatePolicy(by="id", id="key", interval_ms=1_000),))
    view_of = Overlay(MemoryStore(), "pipeline").view
    chain = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT), range(2)))
    chain.process(Batch.of([says([(0, 5_000)]), says([(1, 4_000)])]))
    chain.save()
    chain = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT)))
    # A full buffer let it go before the time that its partition tells.
    first = Record(b"a", b"1", 5_500, (origin(0, 5_000),), PLACE, 0, 3)
    assert chain.process(Batch.of([first])).forwarded.records
    chain.save()
    chain = Chain(policies, view_of, lanes=Lanes(view_of(ABOUT)))
    second = Record(b"a", b"2", 4_900, (origin(1, 4_900),), PLACE, 0, 4)
    assert not chain.process(Batch.of([second])).forwarded.records


def origin(partition: int, time_ms: int) -> tuple[str, bytes]:
    """The header that says where a record came from, and how far its partition was."""
    return origin_header(partition, 0, time_ms)
