"""Source partitions at random, as one place behind a repartition reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from headrace.contracts.origin import AWAKE, SourceTime, origin_header, times_headers
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
    """What stands at the place: records with their origins, and rows of times."""


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
    """What no operator calls late: by time, and without times before stream time begins."""
    return sorted([one for one in records if one.timestamp_ms >= 0], key=lambda one: one[2])


def read_at_random(partitions: dict[int, list[Record]], luck: Random) -> Iterator[Record]:
    """Long runs of one partition and short ones; a partition says its time between its records."""
    left = {number: list(records) for number, records in partitions.items()}
    times_ms = dict.fromkeys(partitions, NO_TIME_MS)
    offset = 0
    while any(left.values()):
        number = luck.choice([number for number, records in left.items() if records])
        for _ in range(min(len(left[number]), luck.choice((1, 1, 2, 20)))):
            record = left[number].pop(0)
            times_ms[number] = max(times_ms[number], record.timestamp_ms)
            header = origin_header(number, record.offset, times_ms[number])
            yield record._replace(headers=(*record.headers, header), topic=PLACE, offset=offset)
            offset += 1
        if luck.random() < 1 / 4:
            yield says([(number, times_ms[number])], offset)
            offset += 1
    yield says(times_ms.items(), offset)


def says(times_ms: Iterable[tuple[int, int]], offset: int, state: int = AWAKE) -> Record:
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
    ) -> None:
        """Expect these partitions to speak."""
        lanes = Lanes(overlay.view(ABOUT), expected)
        self.take(Chain(policies, overlay.view, lanes=lanes), carefully=carefully)


def across(policies: Sequence[AnyOperator], lanes: int, *, carefully: bool = False) -> Build:
    """A chain over so many source partitions."""
    return lambda overlay: AcrossLanes(policies, overlay, range(lanes), carefully=carefully)
