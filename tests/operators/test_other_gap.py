"""Sessions go on under another gap, and a look-up asks for a few segments under any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import AggregatePolicy, Session
from headrace.contracts.record import Record
from headrace.contracts.window import window_of
from headrace.services.operators import segments
from headrace.services.state.memory import MemoryStore
from tests.chance import FEWER
from tests.operators.counting import CountingStore, sweep_often
from tests.operators.service import Service, left, record
from tests.properties import strategies

HOUR_MS = 3_600_000
ROWS_MAX = 200
"""For a record, in segments of a few lengths."""
gaps_ms = st.sampled_from((0, 1, 100, 1_000, 5_000, 60_000))
"""None so long that a look-up in segments of a second takes for ever."""


__all__ = ["sweep_often"]
pytestmark = pytest.mark.usefixtures("sweep_often")


def policy_of(gap_ms: int, grace_ms: int) -> AggregatePolicy:
    return AggregatePolicy(function="collect", window=Session(gap_ms=gap_ms, grace_ms=grace_ms))


def lived(lives: list[tuple[int, int]], records: list[Record]) -> list[list[Record]]:
    """Return what leaves with each record, where every life has a gap and a grace of its own."""
    store, size = MemoryStore(), -(-len(records) // len(lives))
    found: list[list[Record]] = []
    for life, (gap_ms, grace_ms) in enumerate(lives):
        service = Service(policy_of(gap_ms, grace_ms), store=store)
        part = records[life * size : (life + 1) * size]
        found += [left(service.take(one)) for one in part]
    return found


@FEWER
@given(
    st.lists(st.tuples(gaps_ms, st.sampled_from((0, 1_000, 60_000))), min_size=2, max_size=3),
    strategies.records(size_max=30),
)
def test_sessions_are_the_same_in_longer_segments(
    lives: list[tuple[int, int]], records: list[Record]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "GROWTH_MAX", 1 << 62)
        expected = lived(lives, records)
    assert lived(lives, records) == expected


def test_a_look_up_asks_for_a_few_segments_however_far_the_gap_has_grown() -> None:
    store = CountingStore()
    service = Service(policy_of(1_000, 0), store=store)
    first_ms = 1_700_000_000_000
    for at_ms in range(first_ms, first_ms + 20_000, 500):
        service.take(record(at_ms))
    for gap_ms in (HOUR_MS, 24 * HOUR_MS, 1 << 60):
        service = service.restarted(policy_of(gap_ms, 0))
        store.rows_asked = 0
        at_ms += 10_000
        (_, joined) = left(service.take(record(at_ms)))
        window = window_of(joined.headers)
        assert window is not None
        assert (window.start_ms, window.end_ms) == (first_ms, at_ms)
        assert store.rows_asked <= ROWS_MAX


def test_a_session_that_may_change_yet_is_found_in_its_former_segment() -> None:
    first = Service(policy_of(1_000, 30_000))
    first.take(record(1_000_000), record(1_020_000, b"other"))
    second = first.restarted(policy_of(60_000, 30_000))
    _, joined = left(second.take(record(1_020_000)))
    assert joined.value == b"[1,1]"


def test_sessions_of_segments_of_two_lengths_join_in_the_order_of_their_ends() -> None:
    first = Service(policy_of(1_000, 60_000))
    first.take(record(100_000, value=b"100"))
    second = first.restarted(policy_of(40_000, 60_000))
    assert len(left(second.take(record(50_000, value=b"50")))) == 1
    *_, joined = left(second.take(record(75_000, value=b"75")))
    assert joined.value == b"[50,100,75]"
