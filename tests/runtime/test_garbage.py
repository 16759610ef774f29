"""Cycles are found by the clock, and what Python looks through by itself is out of its way."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from headrace.services.runtime.machine import garbage


class Cycle:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    # The objects of the run stay out of the search, as `tests/conftest.py` has it.
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("all_every", [1, 1_000])
def test_a_cycle_is_let_go_after_a_while(monkeypatch: pytest.MonkeyPatch, all_every: int) -> None:
    monkeypatch.setattr(garbage, "_YOUNG_EVERY_S", 0.001)
    monkeypatch.setattr(garbage, "_ALL_EVERY", all_every)
    garbage.collect_by_clock_alone()

    async def until_gone() -> None:
        collecting = asyncio.create_task(garbage.keep_collecting())
        gone = asyncio.Event()
        weakref.finalize(Cycle(), gone.set)
        async with asyncio.timeout(10):
            await gone.wait()
        collecting.cancel()

    asyncio.run(until_gone())


def test_objects_of_the_start_are_never_looked_through() -> None:
    there = Cycle()
    garbage.collect_by_clock_alone()
    assert not any(one is there for one in gc.get_objects())


def test_half_a_million_records_on_their_way_start_no_search() -> None:
    garbage.collect_by_clock_alone()
    gc.collect()
    searches = sum(generation["collections"] for generation in gc.get_stats())
    on_their_way: list[tuple[int, list[int]]] = [(number, []) for number in range(250_000)]
    assert len(on_their_way) == 250_000
    assert sum(generation["collections"] for generation in gc.get_stats()) == searches
