"""Source partitions at random, as one place behind a repartition reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from headrace.contracts.origin import (
    AWAKE,
    NO_OFFSET,
    Origin,
    SourceTime,
    origin_header,
    read_origin,
    read_run,
    read_times,
    run_headers,
    times_headers,
)
from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.state.changelog import ABOUT
from headrace.services.state.overlay import Overlay
from tests.properties.drive import Build, WholeChain
from tests.properties.strategies import records

PLACE = "repartition"


class Read(NamedTuple):
    """Partitions of a source, and one way to read them all at one place."""

    partitions: dict[int, list[Record]]
    place: list[Record]
    """The records at the place: some with their origins, rows of runs, and rows of times."""


@st.composite
def reads(draw: st.DrawFn, *, size_max: int = 12, in_order: bool = False) -> Read:
    """Partitions, read in an order that is random between them; at the end each says its time."""
    count = draw(st.integers(1, 4))
    partitions = {number: draw(records(size_max=size_max)) for number in range(count)}
    if in_order:
        partitions = {number: _in_order(records) for number, records in partitions.items()}
    luck = Random(draw(st.integers(0, 1 << 32)))
    return Read(partitions, list(read_at_random(partitions, luck)))


def _in_order(records: list[Record]) -> list[Record]:
    """Records that no operator calls late: by time, and none before stream time begins."""
    return sorted([one for one in records if one.timestamp_ms >= 0], key=lambda one: one[2])


def read_at_random(partitions: dict[int, list[Record]], luck: Random) -> Iterator[Record]:
    """Long runs of one partition and short ones; partitions say their times between records."""
    for offset, record in enumerate(_at_random(partitions, luck)):
        yield record._replace(topic=PLACE, offset=offset)


def _at_random(partitions: dict[int, list[Record]], luck: Random) -> Iterator[Record]:
    left = {number: list(records) for number, records in partitions.items()}
    times_ms = dict.fromkeys(partitions, NO_TIME_MS)
    while any(left.values()):
        number = luck.choice([number for number, records in left.items() if records])
        count = luck.choice((1, 1, 2, 20))
        records, left[number] = left[number][:count], left[number][count:]
        origins: list[Origin] = []
        for record in records:
            times_ms[number] = max(times_ms[number], record.timestamp_ms)
            offset = NO_OFFSET if record.offset is None else record.offset
            origins.append((number, offset, times_ms[number]))
        if luck.random() < 1 / 2:
            yield Record(None, None, records[0].timestamp_ms, run_headers(origins), PLACE, 0, None)
            yield from records
        else:
            for record, origin in zip(records, origins, strict=True):
                yield record._replace(headers=(*record.headers, origin_header(*origin)))
        if luck.random() < 1 / 4:
            speak = luck.choice(([number], list(partitions)))
            yield says([(each, times_ms[each]) for each in speak])
    yield says(times_ms.items())


def own(place: Iterable[Record]) -> Iterator[Record]:
    """The records at a place as they were sent, without what tells of them."""
    in_run = 0
    for record in place:
        if in_run:
            in_run -= 1
            yield record
        elif (run := read_run(record)) is not None:
            in_run = len(run)
        elif read_origin(record.headers) is not None:
            yield record._replace(headers=record.headers[:-1])
        else:
            assert read_times(record) is not None


def says(times_ms: Iterable[tuple[int, int]], offset: int = 0, state: int = AWAKE) -> Record:
    """A row of times."""
    headers = times_headers(SourceTime(*time, state) for time in times_ms)
    return Record(None, None, 0, headers, PLACE, 0, offset)


class AcrossLanes(WholeChain):
    """A chain behind a repartition as a subject."""

    def __init__(
        self,
        policies: Sequence[AnyOperator],
        overlay: Overlay,
        expected: range,
        *,
        carefully: bool = False,
        warily: bool = False,
        explain: bool = False,
    ) -> None:
        """Expect these partitions to speak."""
        self._lanes = Lanes(overlay.view(ABOUT), expected)
        chain = Chain(policies, overlay.view, lanes=self._lanes, explain=explain)
        self.take(chain, carefully=carefully, warily=warily)

    def skip(self, records: Sequence[Record]) -> None:
        """A run may have begun before the position."""
        self._lanes.skip(records)


def across(
    policies: Sequence[AnyOperator],
    lanes: int,
    *,
    carefully: bool = False,
    warily: bool = False,
    explain: bool = False,
) -> Build:
    """A chain over so many source partitions."""
    return lambda overlay: AcrossLanes(
        policies, overlay, range(lanes), carefully=carefully, warily=warily, explain=explain
    )
