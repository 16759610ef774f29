"""Every record has an event time that harms no other record, or it is dead at the door."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.dead_letter import INTAKE
from headrace.contracts.decision import Reason
from headrace.contracts.pipeline import Source
from headrace.contracts.record import Headers, Record
from headrace.contracts.time import EVENT_TIME_MS_MAX
from headrace.services.intake.timestamps import Timestamps
from headrace.services.operators.operator import Aside, Batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def record(timestamp_ms: int, value: bytes | None = b"v", **headers: bytes | None) -> Record:
    """A record with what matters here."""
    return Record(b"k", value, timestamp_ms, tuple(headers.items()), "clicks.raw", 0, 7)


def take(source: Source, *records: Record) -> tuple[Batch, list[Aside]]:
    """Return the fates of records that come now."""
    return Timestamps(source).take(list(records), NOW_MS)


def source(timestamp: str = "record", max_future_ms: int | None = None) -> Source:
    """A source that reads its timestamps there."""
    return Source(topic="clicks.raw", timestamp=timestamp, max_future_ms=max_future_ms)


def double_of_key(one: Record) -> int:
    """A user's function."""
    return int(one.key or b"0") * 2


def text_of_key(one: Record) -> str:
    """A user's function that gives text."""
    return (one.key or b"").decode()


def raise_always(one: Record) -> int:
    """A user's function with a mistake in it."""
    return 1 // (len(one.topic) - len(one.topic))


MINE = f"{__name__}:"


def test_without_a_guard_any_future_is_believed() -> None:
    batch, dead = take(source(), record(EVENT_TIME_MS_MAX))
    assert (len(batch.records), dead) == (1, [])


@pytest.mark.parametrize("max_future_ms", [0, 1, HOUR_MS])
def test_the_guard_lets_pass_what_is_as_far_ahead_as_allowed(max_future_ms: int) -> None:
    allowed, beyond = record(NOW_MS + max_future_ms), record(NOW_MS + max_future_ms + 1)
    batch, dead = take(source(max_future_ms=max_future_ms), allowed, beyond)
    assert batch == Batch([allowed], [0])
    ahead_ms = max_future_ms + 1
    detail = f"its timestamp is {ahead_ms} ms ahead of the clock; {max_future_ms} ms are allowed"
    assert dead == [Aside(1, INTAKE, beyond, Reason.FUTURE_TIMESTAMP, detail)]


def test_the_guard_moves_with_the_clock() -> None:
    timestamps = Timestamps(source(max_future_ms=0))
    early = timestamps.take([record(NOW_MS)], NOW_MS - 1)
    in_time = timestamps.take([record(NOW_MS)], NOW_MS)
    assert (len(early[1]), len(in_time[1])) == (1, 0)


def test_the_guard_looks_at_the_event_time_and_not_at_that_of_the_record() -> None:
    wanted = source("value.at", max_future_ms=0)
    batch, dead = take(
        wanted, record(NOW_MS + 1, b'{"at": 5}'), record(5, b'{"at": %d}' % (1 << 50))
    )
    assert [one.timestamp_ms for one in batch.records] == [5]
    assert [aside.reason for aside in dead] == [Reason.FUTURE_TIMESTAMP]


@pytest.mark.parametrize("timestamp_ms", [-1, -2, -(1 << 63)])
def test_a_negative_timestamp_is_dead_with_its_number(timestamp_ms: int) -> None:
    negative = record(timestamp_ms)
    batch, dead = take(source(), record(0), negative)
    assert batch.records == [record(0)]
    detail = f"its timestamp is {timestamp_ms}"
    assert dead == [Aside(1, INTAKE, negative, Reason.NEGATIVE_TIMESTAMP, detail)]


def test_a_negative_timestamp_in_a_value_is_dead() -> None:
    _, dead = take(source("value.at"), record(7, b'{"at": -1}'))
    assert [(aside.cause, aside.reason) for aside in dead] == [(0, Reason.NEGATIVE_TIMESTAMP)]


@pytest.mark.parametrize("timestamp_ms", [EVENT_TIME_MS_MAX + 1, (1 << 63) - 1, 10**30])
def test_a_time_that_no_operator_could_write_down_is_dead(timestamp_ms: int) -> None:
    far = record(7, b'{"at": %d}' % timestamp_ms)
    batch, dead = take(source("value.at"), record(7, b'{"at": %d}' % EVENT_TIME_MS_MAX), far)
    assert batch.causes == [0]
    assert [(aside.cause, aside.record) for aside in dead] == [(1, far)]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ((("n", b""),) * ((1 << 16) - 1), "65535 headers"),
        ((("good", b""), ("\udcff", b"")), "UTF-8"),
    ],
)
def test_headers_that_cannot_be_kept_are_dead_at_the_door(headers: Headers, why: str) -> None:
    bad = record(7)._replace(headers=headers)
    good = record(8)._replace(headers=(("\u00e9", b""),) * 100)
    batch, dead = take(source(), bad, good)
    assert batch == Batch([good], [1])
    assert [(aside.cause, aside.record) for aside in dead] == [(0, bad)]
    assert why in dead[0].detail


def test_records_from_the_future_are_counted_where_no_limit_is_set() -> None:
    hour_ms = 3_600_000
    records = [record(NOW_MS + hour_ms), record(NOW_MS + hour_ms + 1), record(EVENT_TIME_MS_MAX)]
    for guard, ahead in ((None, 2), (2 * hour_ms, 0)):
        timestamps = Timestamps(source(max_future_ms=guard))
        timestamps.take(records, NOW_MS)
        assert timestamps.ahead == ahead


def test_taken_and_dead_records_are_counted_by_reason() -> None:
    timestamps = Timestamps(source("value.at", max_future_ms=0))
    values = [b'{"at": 1}', b'{"at": -1}', b"not json", b"[]", b'{"at": %d}' % (NOW_MS + 1)]
    for _ in range(2):
        timestamps.take([record(0, value) for value in values], NOW_MS)
    assert timestamps.taken == 10
    assert timestamps.dead == {
        Reason.NEGATIVE_TIMESTAMP: 2,
        Reason.UNDECODABLE: 4,
        Reason.FUTURE_TIMESTAMP: 2,
    }


@pytest.mark.parametrize(
    ("timestamp", "one", "expected_ms"),
    [
        ("record", record(12), 12),
        ("value.at", record(12, b'{"at": 34}'), 34),
        ("value.at.ms", record(12, b'{"at": {"ms": 34}}'), 34),
        ("value.at", record(12, b'{"at": "1970-01-01T00:00:01.5Z"}'), 1_500),
        ("value.at", record(12, b'{"at": "1970-01-01T01:00:00+01:00"}'), 0),
        ("value", record(12, b"34"), 34),
        ("header.at", record(12, at=b"1970-01-01T00:00:02Z"), 2_000),
        (MINE + "double_of_key", record(12)._replace(key=b"21"), 42),
        (MINE + "text_of_key", record(12)._replace(key=b"1970-01-01T00:00:03Z"), 3_000),
    ],
)
def test_the_event_time_is_read_where_the_source_says(
    timestamp: str, one: Record, expected_ms: int
) -> None:
    batch, dead = take(source(timestamp), one)
    assert dead == []
    assert batch.records == [one._replace(timestamp_ms=expected_ms)]


@pytest.mark.parametrize(
    ("timestamp", "one"),
    [
        ("value.at", record(12, b"not json")),
        ("value.at", record(12, b"\xff\x00")),
        ("value.at", record(12, b"")),
        ("value.at", record(12, b"{}")),
        ("value.at", record(12, b'{"at": null}')),
        ("value.at", record(12, b'{"at": true}')),
        ("value.at", record(12, b'{"at": 1.5}')),
        ("value.at", record(12, b'{"at": "yesterday"}')),
        ("value.at", record(12, b'{"at": "2024-01-01T00:00:00"}')),
        ("header.at", record(12)),
        ("header.at", record(12, at=None)),
        ("header.at", record(12, at=b"\xff")),
        (MINE + "raise_always", record(12)),
        (MINE + "double_of_key", record(12)._replace(key=b"no number")),
    ],
)
def test_a_time_that_cannot_be_read_is_dead_with_its_bytes(timestamp: str, one: Record) -> None:
    batch, dead = take(source(timestamp), one)
    assert batch == Batch([], [])
    assert [(aside.cause, aside.operator, aside.record, aside.reason) for aside in dead] == [
        (0, INTAKE, one, Reason.FAILED if "raised" in dead[0].detail else Reason.UNDECODABLE)
    ]
    # The detail goes into logs: it says where to look, and never what stands there.
    assert timestamp.partition(".")[0] in dead[0].detail
    assert "yesterday" not in dead[0].detail


def test_a_tombstone_keeps_the_time_that_it_came_with() -> None:
    batch, dead = take(source("value.at"), record(12, None), record(13, b'{"at": 1}'))
    assert dead == []
    assert [one.timestamp_ms for one in batch.records] == [12, 1]


def test_a_tombstone_has_a_header_like_any_other_record() -> None:
    batch, _ = take(source("header.at"), record(12, None, at=b"1970-01-01T00:00:02Z"))
    assert batch.records == [record(2_000, None, at=b"1970-01-01T00:00:02Z")]


def test_a_tombstone_with_a_negative_time_is_dead_all_the_same() -> None:
    _, dead = take(source("value.at"), record(-1, None))
    assert [aside.reason for aside in dead] == [Reason.NEGATIVE_TIMESTAMP]


def test_causes_are_the_places_at_which_records_came() -> None:
    records = [record(time) for time in (5, -1, 6, -1, -1, 7)]
    batch, dead = take(source(), *records)
    assert batch.causes == [0, 2, 5]
    assert [aside.cause for aside in dead] == [1, 3, 4]


def test_no_records_are_a_batch_too() -> None:
    for wanted in (source(), source(max_future_ms=0), source("value.at")):
        assert take(wanted) == (Batch([], []), [])


def test_a_record_leaves_with_all_but_its_time_as_it_was() -> None:
    one = Record(b"", b'{"at": 9}', 3, (("n", None), ("n", b"1")), "t", 4, None)
    batch, _ = take(source("value.at"), one)
    assert batch.records == [one._replace(timestamp_ms=9)]


times_ms = st.sampled_from((-1, 0, 1, NOW_MS, NOW_MS + 5, NOW_MS + 6, 1 << 61))


@given(st.lists(times_ms, max_size=8), st.sampled_from((None, 0, 5)))
def test_the_fast_way_for_records_as_they_are_is_the_slow_one(
    times: list[int], max_future_ms: int | None
) -> None:
    fast = Timestamps(source(max_future_ms=max_future_ms))
    # The same times, but read from the value, which is never done at once for all.
    slow = Timestamps(source("value.at", max_future_ms=max_future_ms))
    records = [record(time_ms, b'{"at": %d}' % time_ms) for time_ms in times]
    assert fast.take(records, NOW_MS) == slow.take(records, NOW_MS)
    assert (fast.taken, fast.dead) == (slow.taken, slow.dead)


@given(st.lists(times_ms, max_size=8), st.lists(st.integers(0, 8), max_size=3))
def test_how_records_are_cut_into_batches_changes_nothing(
    times: list[int], cuts: list[int]
) -> None:
    records = [record(time_ms) for time_ms in times]
    whole = take(source(max_future_ms=5), *records)
    parts = Timestamps(source(max_future_ms=5))
    left: list[Record] = []
    dead: list[Record] = []
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    for first, end in pairwise(bounds):
        batch, asides = parts.take(records[first:end], NOW_MS)
        left += batch.records
        dead += [aside.record for aside in asides]
    assert (left, dead) == (whole[0].records, [aside.record for aside in whole[1]])


@given(st.lists(times_ms, max_size=8), st.sampled_from((None, 0, 5)))
def test_every_record_goes_on_or_is_dead(times: list[int], max_future_ms: int | None) -> None:
    records = [record(time_ms) for time_ms in times]
    batch, dead = take(source(max_future_ms=max_future_ms), *records)
    assert sorted([*batch.causes, *(aside.cause for aside in dead)]) == list(range(len(records)))
