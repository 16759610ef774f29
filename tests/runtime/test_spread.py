"""Which partition an id leads to: the one that Kafka's own clients would take."""

from __future__ import annotations

import pytest

from contracts.decision import Reason
from contracts.hops import Repartition
from contracts.record import Record
from contracts.topics import repartition_topic
from services.operators.operator import Batch
from services.runtime.exits import Spread

COUNTS = (1, 2, 3, 7, 12, 64)
KAFKAS_PARTITIONS = {
    b"": (0, 1, 0, 2, 9, 25),
    b"1": (0, 1, 0, 2, 3, 15),
    b"21": (0, 0, 0, 3, 0, 44),
    b"foobar": (0, 0, 0, 0, 6, 62),
    b"a-little-bit-long-string": (0, 0, 2, 1, 8, 32),
    b"a-little-bit-longer-string": (0, 1, 2, 0, 11, 3),
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": (0, 1, 2, 3, 5, 13),
    "id-\u00e9\u4e16".encode(): (0, 0, 2, 0, 2, 46),
    b"\x00": (0, 0, 2, 0, 8, 60),
    b"\xff\x80\x00\x01\xfe": (0, 0, 2, 2, 8, 48),
}
"""What BuiltInPartitioner.partitionForKey of Kafka 4.3.1 says for these counts."""
HOME = 1


def spread_by(selector: str) -> Spread:
    return Spread(Repartition(repartition_topic("p", "once"), "once", selector))


def of_id(identity: bytes | None, value: bytes | None = b"v", offset: int = 0) -> Record:
    return Record(b"k", value, 1, (("id", identity), ("h", None)), "raw", HOME, offset)


@pytest.mark.parametrize(("place", "partitions"), list(enumerate(COUNTS)))
def test_an_id_leads_where_kafkas_own_clients_lead_a_key(place: int, partitions: int) -> None:
    records = [of_id(identity) for identity in KAFKAS_PARTITIONS]
    spread, dead = spread_by("header.id").by_partition(Batch.of(records), partitions, HOME)
    expected: dict[int, list[Record]] = {}
    for record, of_counts in zip(records, KAFKAS_PARTITIONS.values(), strict=True):
        expected.setdefault(of_counts[place], []).append(record)
    assert spread == expected
    assert dead == []


def test_who_has_no_id_stays_at_home() -> None:
    spread, dead = spread_by("header.id").by_partition(Batch.of([of_id(None)]), 4, HOME)
    assert (spread, dead) == ({HOME: [of_id(None)]}, [])


def test_home_is_a_partition_that_there_is() -> None:
    spread, _ = spread_by("header.id").by_partition(Batch.of([of_id(None)]), 2, 5)
    assert list(spread) == [1]


def test_records_of_a_partition_stay_in_order() -> None:
    records = [of_id(b"1", b"%d" % at, at) for at in range(5)]
    spread, _ = spread_by("header.id").by_partition(Batch.of(records), 2, HOME)
    assert spread == {1: records}


def test_an_id_that_cannot_be_read_is_dead_and_names_its_cause() -> None:
    good, poison = of_id(None, b'{"id":"1"}'), of_id(None, b'{"id":')
    batch = Batch([good, poison, good], [4, 7, 9])
    spread, (aside,) = spread_by("value.id").by_partition(batch, 2, HOME)
    assert spread == {1: [good, good]}
    assert (aside.cause, aside.operator, aside.record) == (7, "once", poison)
    assert aside.reason is Reason.UNDECODABLE
