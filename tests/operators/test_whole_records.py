"""A record leaves as it came, whatever its key, its value and its headers are."""

from __future__ import annotations

import pytest

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    ReorderPolicy,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
)
from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from tests.operators.service import FAR_MS, Service, left, record

MEGABYTE = b"\x01k" * (1 << 19)
TWICE: Headers = (("id", b"1"), ("\u00e9", None), ("id", b"2"), ("", b""), ("id", b"1"))
SPILL = BufferPolicy(records=0, when_full="spill")
PASSING: tuple[AnyOperator, ...] = (
    ReorderPolicy(grace_ms=5_000),
    ReorderPolicy(grace_ms=5_000, buffer=SPILL),
    DeduplicatePolicy(interval_ms=5_000),
    DeduplicatePolicy(by="key+id", id="header.id", interval_ms=5_000),
    TablePolicy(),
    FilterPolicy(where="key != null"),
    SuppressPolicy(until="time-limit", limit_ms=5_000),
    SuppressPolicy(until="time-limit", limit_ms=5_000, buffer=SPILL),
)
HELD = tuple(one for one in PASSING if isinstance(one, ReorderPolicy | SuppressPolicy))
RECORDS = {
    "plain": Record(b"k", b"1", 10_000, (), "clicks", 0, 1),
    "an empty key": Record(b"", b"1", 10_000, (), "clicks", 0, 1),
    "an empty value": Record(b"k", b"", 10_000, (), "clicks", 0, 1),
    "no value": Record(b"k", None, 10_000, (), "clicks", 0, 1),
    "a key of a megabyte": Record(MEGABYTE, b"1", 10_000, (), "clicks", 0, 1),
    "a value of a megabyte": Record(b"k", MEGABYTE, 10_000, (), "clicks", 0, 1),
    "a header of a megabyte": Record(b"k", b"1", 10_000, (("h", MEGABYTE),), "clicks", 0, 1),
    "headers twice": Record(b"k", b"1", 10_000, TWICE, "clicks", 0, 1),
    "time zero": Record(b"k", b"1", 0, (), "clicks", 0, 1),
    "no offset": Record(b"k", b"1", 10_000, (), "\u00f6", 2_147_483_647, None),
    "offset zero": Record(b"k", b"1", 10_000, (), "t", 0, 0),
    "the last offset": Record(b"k", b"1", 10_000, (), "t", 0, (1 << 63) - 1),
}
every_record = pytest.mark.parametrize("one", RECORDS.values(), ids=RECORDS)
LAST = record(FAR_MS, b"last")


@every_record
@pytest.mark.parametrize("policy", PASSING, ids=str)
def test_a_record_leaves_as_itself(policy: AnyOperator, one: Record) -> None:
    service = Service(policy)
    gone = left(service.take(one)) + left(service.take(LAST))
    assert gone[:1] == [one]
    assert gone[1:] in ([], [LAST])


@every_record
@pytest.mark.parametrize("policy", HELD, ids=str)
def test_a_record_that_waited_on_disk_leaves_as_itself(policy: AnyOperator, one: Record) -> None:
    first = Service(policy)
    first.take(one)
    assert first.held == 1
    second = first.restarted(policy)
    assert second.held == 1
    assert left(second.take(LAST)) == [one]


@pytest.mark.parametrize("policy", PASSING, ids=str)
def test_a_record_that_stays_in_memory_is_the_very_same(policy: AnyOperator) -> None:
    one = RECORDS["headers twice"]
    service = Service(policy)
    (gone, *_) = left(service.take(one, LAST))
    assert gone.key is one.key
    assert gone.value is one.value
    assert gone.headers is one.headers


@pytest.mark.parametrize("policy", PASSING, ids=str)
def test_a_record_without_key_leaves_or_is_dropped_and_counted(policy: AnyOperator) -> None:
    service = Service(policy)
    one = record(10_000, None)
    gone = left(service.take(one)) + left(service.take(LAST))
    dropped = service.chain.operators[0].counts.dropped
    assert (one in gone) != bool(dropped)
    assert isinstance(policy, ReorderPolicy | DeduplicatePolicy) == (one in gone)


def test_a_null_key_leaves_before_an_empty_one_of_the_same_time() -> None:
    service = Service(ReorderPolicy(grace_ms=5))
    keys = [b"a", b"", None, b"\x01"]
    service.take(*(record(10, key) for key in keys))
    assert [one.key for one in left(service.take(LAST))] == [None, b"", b"\x01", b"a"]


@pytest.mark.parametrize("key", [b"", b"k", MEGABYTE], ids=["empty", "short", "a megabyte"])
def test_a_windowed_record_is_the_record_keyed_by_its_window(key: bytes) -> None:
    one = RECORDS["headers twice"]._replace(key=key)
    window = WindowBounds("tumbling", 10_000, 15_000)
    policy = DistinctPolicy(window=Tumbling(size_ms=5_000, grace_ms=0))
    (gone,) = left(Service(policy).take(one))
    assert gone == one._replace(
        key=windowed_key(key, window), headers=(*TWICE, window_header(window))
    )


@pytest.mark.parametrize("key", [b"", b"k", MEGABYTE], ids=["empty", "short", "a megabyte"])
def test_a_result_has_the_headers_and_the_origin_of_the_record_behind_it(key: bytes) -> None:
    one = RECORDS["headers twice"]._replace(key=key)
    (gone,) = left(Service(AggregatePolicy(function="last")).take(one))
    assert gone == one


def test_a_duplicate_with_a_key_of_a_megabyte_is_known_after_a_restart() -> None:
    policy = DeduplicatePolicy(interval_ms=5_000)
    first = Service(policy)
    first.take(record(10, MEGABYTE))
    again = record(11, MEGABYTE)
    nearly = record(11, MEGABYTE[:-1])
    assert left(first.restarted(policy).take(again, nearly)) == [nearly]


def test_the_last_header_of_a_name_is_the_one_that_counts() -> None:
    policy = DeduplicatePolicy(by="id", id="header.id", interval_ms=5_000)
    one, other = record(10, headers=TWICE), record(11, headers=(("id", b"2"), ("id", b"1")))
    different = record(12, headers=(("id", b"1"), ("id", b"2")))
    assert left(Service(policy).take(one, other, different)) == [one, different]


def test_an_event_without_a_value_passes_a_filter_whoever_released_it() -> None:
    limited = SuppressPolicy(until="time-limit", limit_ms=10)
    service = Service(limited, FilterPolicy(where='key == "k"'))
    held = record(5, value=None)
    service.take(held)
    step = service.chain.advance(100)
    assert step is not None
    assert left(step) == [held]
