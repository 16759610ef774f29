"""Updates that are earlier than their places: what is said of them is never too late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt
from headrace.services.operators.laggards import Laggards
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

times = st.integers(-30, 30)
moves = st.lists(
    st.tuples(st.just("add"), times, st.integers(1, 30)) | st.tuples(st.just("left"), times)
)
FEW = 16


@given(moves=moves)
def test_no_held_update_is_earlier_than_the_least(moves: list[tuple[str, int, int]]) -> None:
    overlay = Overlay(MemoryStore(), "pipeline")
    laggards = Laggards(overlay.view("suppress"))
    held: set[tuple[int, int]] = set()
    most = 0
    for what, place_ms, *lag_ms in moves:
        if what == "add":
            laggards.add(place_ms, place_ms - lag_ms[0])
            held.add((place_ms, place_ms - lag_ms[0]))
        else:
            laggards.save(place_ms)
            held = {one for one in held if one[0] >= place_ms}
            overlay.commit({})
            laggards = Laggards(overlay.view("suppress"))
        most = max(most, len(held))
        least_ms = min((time_ms for _, time_ms in held), default=None)
        if least_ms is None or most <= FEW:
            assert laggards.least_ms == least_ms
        else:
            assert laggards.least_ms is not None
            assert laggards.least_ms <= least_ms


def test_the_first_of_too_many_goes_in_its_time() -> None:
    laggards = Laggards(Overlay(MemoryStore(), "pipeline").view("suppress"))
    for place_ms in range(0, 1_000, 10):
        laggards.add(place_ms, place_ms - 1)
    laggards.save(5)
    assert laggards.least_ms == 9


def test_a_row_that_ends_in_the_middle_is_corrupt() -> None:
    view = Overlay(MemoryStore(), "pipeline").view("suppress")
    view.put_many({view.prefix + b"\x03": bytes(15)})
    with pytest.raises(StateCorrupt, match="a row of pairs of 8 bytes has 15"):
        Laggards(view)
