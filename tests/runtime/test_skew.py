"""A partition far ahead waits for the slowest, except for idle ones and those never heard of."""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.contracts.origin import AT_END, AWAKE, IDLE, SourceTime, times_headers
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.runtime.input.inbox import Inbox
from headrace.services.runtime.time.skew import Skew
from headrace.services.runtime.time.together import Together
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.runtime.sidecar import record

SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "clicks",
        "source": {"topic": "raw"},
        "operators": [{"deduplicate": {"by": "id", "id": "header.id", "interval": "1m"}}],
        "sink": {"topic": "cleaned"},
    }
)
FIRST, SECOND, ELSEWHERE = range(3)
MAX_SKEW_MS = 1_000
TURNS = 10
"""More of the loop than it takes to go on."""


def yes() -> bool:
    """All in the group say how far they are."""
    return True


def place(**times_ms: int) -> Lanes:
    """A place behind the repartition, with the time of the partition that runs elsewhere."""
    lanes = Lanes(Overlay(MemoryStore(), "p").view(""), range(3))
    for said_ms in times_ms.values():
        said = [SourceTime(ELSEWHERE, said_ms, AWAKE)]
        lanes.take(Batch.of([Record(None, None, 0, times_headers(said), "place", 0, 0)]))
    return lanes


def test_a_partition_that_is_ahead_by_more_waits_and_the_slowest_never_does() -> None:
    skew = Skew(MAX_SKEW_MS, yes)
    skew.is_at(FIRST, 5_000)
    skew.is_at(SECOND, 6_000)
    assert (skew.is_ahead(FIRST), skew.is_ahead(SECOND)) == (False, False)
    skew.is_at(SECOND, 6_001)
    assert (skew.is_ahead(FIRST), skew.is_ahead(SECOND)) == (False, True)
    assert skew.slowest == (5_000, FIRST)
    assert skew.ahead_ms(SECOND) == 1_001


def test_no_partition_waits_for_one_that_is_idle_at_its_end_or_gone() -> None:
    for state in (IDLE, AT_END):
        skew = Skew(MAX_SKEW_MS, yes)
        skew.is_at(FIRST, 5_000)
        skew.is_at(SECOND, 9_000)
        skew.is_at(FIRST, 5_000, state)
        assert not skew.is_ahead(SECOND)
    skew.is_at(FIRST, 5_000)
    assert skew.is_ahead(SECOND)
    skew.left(FIRST)
    assert not skew.is_ahead(SECOND)


def test_no_partition_waits_while_some_cannot_say_how_far_they_are() -> None:
    skew = Skew(MAX_SKEW_MS, lambda: False)
    skew.is_at(FIRST, 5_000)
    skew.is_at(SECOND, 9_000)
    assert not skew.is_ahead(SECOND)


def test_a_partition_that_has_not_begun_holds_the_others_and_need_not_wait_itself() -> None:
    skew = Skew(MAX_SKEW_MS, yes)
    skew.is_at(FIRST, -1)
    skew.is_at(SECOND, 9_000)
    assert (skew.is_ahead(FIRST), skew.is_ahead(SECOND)) == (False, True)


def test_those_of_other_instances_are_known_from_a_place() -> None:
    skew = Skew(MAX_SKEW_MS, yes)
    skew.is_at(FIRST, 9_000)
    skew.is_at(SECOND, 9_000)
    lanes = place(told=2_000)
    skew.hears(0, lanes)
    # The times of our own partitions are older in the place than in their tasks.
    assert skew.slowest == (2_000, ELSEWHERE)
    assert skew.is_ahead(FIRST)
    skew.hears(0, place(told=8_500))
    assert not skew.is_ahead(FIRST)
    skew.hears(0, lanes)
    skew.hears_no_more(0)
    assert not skew.is_ahead(FIRST)


def test_a_waiting_partition_is_let_go_when_the_slowest_has_moved() -> None:
    async def live() -> None:
        skew = Skew(MAX_SKEW_MS, yes)
        skew.is_at(FIRST, 5_000)
        skew.is_at(SECOND, 9_000)
        waiting = asyncio.create_task(skew.wait(SECOND, 60.0))
        await asyncio.sleep(0)
        assert skew.is_waiting(SECOND)
        skew.is_at(FIRST, 8_000)
        await waiting
        assert not skew.is_waiting(SECOND)

    asyncio.run(live())


def test_a_task_that_waits_for_slower_ones_looks_again_when_its_inbox_is_woken() -> None:
    first, second = SPEC.hops()

    async def live() -> None:
        skew = Skew(MAX_SKEW_MS, yes)
        skew.is_at(FIRST, 5_000)
        skew.is_at(SECOND, 9_000)
        says, hears = Together(skew, first, SECOND), Together(skew, second, SECOND)
        waiting = asyncio.create_task(says.wait(60.0))
        await asyncio.sleep(0)
        Inbox(hears.wake).wake()
        assert skew.is_waiting(SECOND)
        Inbox(says.wake).wake()
        assert not skew.is_waiting(SECOND)
        await waiting
        assert says.is_ahead()

    asyncio.run(live())


def test_a_piece_is_short_in_time_and_never_empty() -> None:
    records = [record(b"k", b"", at_ms) for at_ms in (0, 100, 250, 251, 5_000, 4_000, 9_000)]
    pieces = list(Skew(MAX_SKEW_MS, yes).pieces(records))
    assert [len(piece) for piece in pieces] == [3, 1, 2, 1]
    assert [one for piece in pieces for one in piece] == records


def test_a_partition_gives_way_to_one_that_is_behind_it_and_has_records_at_hand() -> None:
    skew = Skew(MAX_SKEW_MS, yes)
    skew.is_at(FIRST, 5_000)
    skew.is_at(SECOND, 5_000 + MAX_SKEW_MS // 16)
    skew.takes(FIRST)
    assert not skew.gives_way(SECOND)
    skew.is_at(SECOND, 5_001 + MAX_SKEW_MS // 16)
    assert (skew.gives_way(FIRST), skew.gives_way(SECOND)) == (False, True)
    skew.has_taken(FIRST)
    assert not skew.gives_way(SECOND)
    skew.takes(FIRST)
    skew.left(FIRST)
    assert not skew.gives_way(SECOND)


def test_a_partition_that_gives_way_goes_on_at_once_when_the_other_has_no_more_records() -> None:
    async def live() -> None:
        skew = Skew(MAX_SKEW_MS, yes)
        skew.is_at(FIRST, 5_000)
        skew.is_at(SECOND, 5_500)
        for moves in (partial(skew.has_taken, FIRST), partial(skew.is_at, FIRST, 5_500)):
            skew.takes(FIRST)
            waiting = asyncio.ensure_future(skew.wait(SECOND, 60.0))
            await asyncio.sleep(0)
            assert not skew.is_waiting(SECOND), "it is less than max-skew ahead"
            moves()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert waiting.done()

    asyncio.run(live())
