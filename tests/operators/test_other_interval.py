"""Ids are known under another interval, and a look-up asks for a few segments under any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.origin import origin_header
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.operators.segments import (
    Former,
    Segments,
    pack_segments,
    unpack_segments,
)
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.chance import FEWER
from tests.operators.counting import CountingStore, sweep_often
from tests.operators.service import Service, left, record
from tests.properties import strategies

DAY_MS = 86_400_000
LOOK_UPS_MAX = 60
"""For two batches, segments of a few lengths, and rows about the state."""
intervals_ms = st.sampled_from((0, 1, 100, 1_000, 5_000, 60_000, DAY_MS, 1 << 61))


__all__ = ["sweep_often"]
pytestmark = pytest.mark.usefixtures("sweep_often")


class Known:
    """The ids that an operator must know, and those that it may know, by its own decisions."""

    def __init__(self) -> None:
        """Begin without any."""
        self._surely: list[tuple[bytes, int]] = []
        self._ever: list[tuple[bytes, int]] = []
        self._time_ms = NO_TIME_MS

    def check(self, one: Record, interval_ms: int, *, leaves: bool) -> None:
        """Compare the decision about a record, and remember the record if that was to be done."""
        self._time_ms = max(self._time_ms, one.timestamp_ms)
        oldest_ms = self._time_ms - interval_ms
        self._surely = [entry for entry in self._surely if entry[1] >= oldest_ms]
        if one.key is None or self._has(self._ever, one, interval_ms, oldest_ms) is False:
            assert leaves, f"{one} has no duplicate"
        elif self._has(self._surely, one, interval_ms, oldest_ms):
            assert not leaves, f"{one} has a duplicate"
        if leaves and one.key is not None and one.timestamp_ms >= oldest_ms:
            self._surely.append((one.key, one.timestamp_ms))
            self._ever.append((one.key, one.timestamp_ms))

    @staticmethod
    def _has(
        entries: list[tuple[bytes, int]], one: Record, interval_ms: int, oldest_ms: int
    ) -> bool:
        return any(
            key == one.key and at_ms >= oldest_ms and abs(at_ms - one.timestamp_ms) <= interval_ms
            for key, at_ms in entries
        )


@FEWER
@given(st.lists(intervals_ms, min_size=2, max_size=3), strategies.records(size_max=30))
def test_an_id_stays_known_however_the_interval_changes(
    each_ms: list[int], records: list[Record]
) -> None:
    known, store = Known(), MemoryStore()
    size = -(-len(records) // len(each_ms))
    for life, interval_ms in enumerate(each_ms):
        service = Service(DeduplicatePolicy(interval_ms=interval_ms), store=store)
        for one in records[life * size : (life + 1) * size]:
            without_offset = one._replace(offset=None)
            leaves = bool(left(service.take(without_offset)))
            known.check(without_offset, interval_ms, leaves=leaves)


def times_of(interval_ms: int) -> Iterator[int]:
    """A few times, of which two neighbours are further apart than the interval."""
    return iter(range(1_700_000_000_000, 1_700_000_000_000 + 10 * interval_ms, 2 * interval_ms))


def test_a_look_up_asks_for_a_few_segments_however_far_the_interval_has_grown() -> None:
    store = CountingStore()
    service = Service(DeduplicatePolicy(interval_ms=1_000), store=store)
    for at_ms in times_of(1_000):
        service.take(record(at_ms), record(at_ms, b"other"))
    for interval_ms in (DAY_MS, 7 * DAY_MS, 1 << 61):
        service = service.restarted(DeduplicatePolicy(interval_ms=interval_ms))
        store.calls = 0
        assert left(service.take(record(at_ms + 10_000), record(at_ms + 10_000, b"other"))) == []
        assert left(service.take(record(at_ms + 10_000, b"%d" % interval_ms)))
        assert store.calls <= LOOK_UPS_MAX


def test_the_same_holds_behind_a_repartition() -> None:
    store = CountingStore()
    overlay = Overlay(store, "across")

    def take(interval_ms: int, *records: Record) -> list[Record]:
        policy = DeduplicatePolicy(
            name="ids", store="ids", by="id", id="key", interval_ms=interval_ms
        )
        chain = Chain([policy], overlay.view, lanes=Lanes(overlay.view(ABOUT), range(2)))
        store.calls = 0
        came = [
            one._replace(headers=(origin_header(number % 2, number, one.timestamp_ms),))
            for number, one in enumerate(records)
        ]
        step = chain.process(Batch.of(came))
        chain.save()
        overlay.commit({})
        return step.forwarded.records

    first_ms = 1_700_000_000_000
    for at_ms in range(first_ms, first_ms + 20_000, 1_500):
        assert len(take(1_000, record(at_ms), record(at_ms, b"other"))) == 2
    for interval_ms in (DAY_MS, 7 * DAY_MS, 1 << 61):
        later = record(at_ms + 10_000), record(at_ms + 10_000, b"other")
        assert take(interval_ms, *later) == []
        assert store.calls <= LOOK_UPS_MAX
        new = [record(at_ms + 10_000, b"%d" % interval_ms)] * 2
        assert len(take(interval_ms, *new)) == 1
        assert store.calls <= LOOK_UPS_MAX


def test_segments_are_as_they_were_written() -> None:
    written = "000000000000ea6000000000000003e87fffffffffffec788000000000001b58"
    assert pack_segments(Segments(60_000, (Former(1_000, -5_000, 7_000),))).hex() == written
    segments = Segments(60_000, (Former(1_000, -5_000, 7_000), Former(9_000, 0, 1 << 60)))
    row = b"12345678" + pack_segments(segments)
    assert unpack_segments(row, 8) == segments
    # As every state had it before an interval had grown so far.
    assert unpack_segments(row[:16], 8) == Segments(60_000)
    for damaged in (row[:-1], row[:15], row[:8], row[:16] + b"\0" * 24):
        with pytest.raises(StateCorrupt):
            unpack_segments(damaged, 8)


def test_former_segments_are_forgotten_when_all_in_them_is_over() -> None:
    segments = Segments(1_000, (Former(10, 0, 500),))
    assert segments.going_on(4_000, 500, 0, 0) == segments
    # A row of 9 ms stands in the former segment that starts at 8 ms.
    assert Segments(9, (Former(2, 0, 100),)).first_start(9) == 8
    assert segments.going_on(4_000, 501, 0, 0) == Segments(1_000)
    assert segments.going_on(4_001, 500, -500, 4_800) == Segments(
        4_001, (Former(10, 0, 500), Former(1_000, -500, 4_800))
    )
