"""Bytes on a repartition topic, and in the state behind it, as first written."""

from __future__ import annotations

from headrace.contracts.origin import (
    AWAKE,
    IDLE,
    NO_OFFSET,
    SourceTime,
    origin_header,
    read_origin,
    read_run,
    read_times,
    run_headers,
    times_headers,
)
from headrace.contracts.policies import MergePolicy
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

ORIGIN = "000000020000000000000007000000000000012c"
RUN = "0000000200000000000000078000000000000000000000000000012cffffffffffffffff"
TIMES = "00000002000000000000012c0000000003ffffffffffffffff01"
ROWS = {
    "6c616e6500000000": "800000000000012c00",
    "6c616e6500000001": "7fffffffffffffff00",
    "6c6174657374": "800000000000012c",
}
"""Lanes 0 and 1, the one at 300 ms and the other not heard of; and the latest time."""
HEADER = (
    "ffffffffffffffff"
    "00000001"
    "000000000000012c"
    "fffffffffffffffe"
    "0000000000000001"
    "0000000000000000"
    "00000001"
)
"""Bound, latest turn, released through, held, weight, next arrival."""
PLACE = "01800000000000012c020000000100000000016b"
"""Space, time, in a lane, partition and one, arrival, has a key, the key."""


def of_lane(number: int, time_ms: int) -> Record:
    header = origin_header(number, 7, time_ms)
    return Record(b"k", b"v", time_ms, (header,), "place", 0, 0)


def test_an_origin_and_a_row_of_times_are_as_first_written() -> None:
    name, value = origin_header(2, 7, 300)
    assert (name, value.hex()) == ("headrace.origin", ORIGIN)
    assert read_origin(((name, value),)) == (2, 7, 300)
    times = [SourceTime(2, 300, AWAKE), SourceTime(3, -1, IDLE)]
    ((name, value_of_row),) = times_headers(times)
    assert value_of_row is not None
    assert (name, value_of_row.hex()) == ("headrace.times", TIMES)
    assert read_times(Record(None, None, 0, times_headers(times), "place", 0, 0)) == times


def test_the_row_of_a_run_is_as_first_written() -> None:
    origins = [(2, 7, 300), (2, NO_OFFSET, -1)]
    ((name, value),) = run_headers(origins)
    assert value is not None
    assert (name, value.hex()) == ("headrace.run", RUN)
    assert read_run(Record(None, None, 0, ((name, value),), "place", 0, 0)) == origins


def test_lanes_and_what_is_held_in_them_are_as_first_written() -> None:
    overlay = Overlay(MemoryStore(), "golden")
    lanes = Lanes(overlay.view(ABOUT), range(2))
    chain = Chain([MergePolicy(name="merge", store="merge")], overlay.view, lanes=lanes)
    chain.process(Batch.of([of_lane(0, 300)]))
    chain.save()
    about, merge = overlay.view(ABOUT), overlay.view("merge")
    rows = {key[len(about.prefix) :].hex(): row for key, row in about.pending.items()}
    assert {key: row.hex() for key, row in rows.items() if row is not None} == ROWS
    held = {key[len(merge.prefix) :].hex(): row for key, row in merge.pending.items()}
    assert held.keys() == {"00", PLACE}
    assert (held["00"] or b"").hex() == HEADER
