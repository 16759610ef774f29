"""Which partition an id leads to: the one of Kafka's own clients; and what is told of time."""

from __future__ import annotations

from collections.abc import Container
from random import Random

import pytest
from aiokafka.partitioner import murmur2 as theirs

from headrace.contracts.decision import Reason
from headrace.contracts.hops import Hop, Repartition
from headrace.contracts.origin import AWAKE, IDLE, SourceTime, read_origin
from headrace.contracts.record import Record
from headrace.contracts.topics import changelog_topic, repartition_topic
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import NO_CAUSE, Aside, Batch
from headrace.services.runtime.output.partitioner import murmur2
from headrace.services.runtime.output.spread import SAY_AGAIN_S, Spread
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

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
"""The partitions that BuiltInPartitioner.partitionForKey of Kafka 4.3.1 gives for these counts."""
HOME = 1


class Clock:
    """A clock that is moved by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time that it shows."""
        return self.now_s


class Readers:
    """All of this version, or not yet."""

    says_origins = True
    says_runs = True


def spread_by(
    selector: str,
    over: int,
    home: int = HOME,
    clock: Clock | None = None,
    readers: Readers | None = None,
) -> tuple[Chain, Spread]:
    end = Repartition(repartition_topic("p", "once"), "once", selector)
    hop = Hop("state", "raw", (), changelog_topic("p", "state"), end)
    chain = Chain((), Overlay(MemoryStore(), "p").view)
    return chain, Spread(hop, home, chain, readers or Readers(), over, clock or Clock())


def by_partition(
    spread_and_chain: tuple[Chain, Spread], batch: Batch
) -> tuple[dict[int, list[Record]], list[Aside]]:
    """Where records go; they are as they came, and what is said of them is said apart."""
    chain, spread = spread_and_chain
    chain.process(batch)
    parts, dead = spread.by_partition(batch, spread.over)
    return {to: part.records for to, part in parts.items()}, dead


def of_id(identity: bytes | None, value: bytes | None = b"v", offset: int = 0) -> Record:
    return Record(b"k", value, 1, (("id", identity), ("h", None)), "raw", HOME, offset)


@pytest.mark.parametrize(("place", "partitions"), list(enumerate(COUNTS)))
def test_an_id_leads_where_kafkas_own_clients_lead_a_key(place: int, partitions: int) -> None:
    records = [of_id(identity) for identity in KAFKAS_PARTITIONS]
    spread, dead = by_partition(spread_by("header.id", partitions), Batch.of(records))
    expected: dict[int, list[Record]] = {}
    for record, of_counts in zip(records, KAFKAS_PARTITIONS.values(), strict=True):
        expected.setdefault(of_counts[place], []).append(record)
    assert spread == expected
    assert dead == []


def test_a_record_without_an_id_stays_at_home() -> None:
    spread, dead = by_partition(spread_by("header.id", 4), Batch.of([of_id(None)]))
    assert (spread, dead) == ({HOME: [of_id(None)]}, [])


def test_home_is_a_partition_that_there_is() -> None:
    spread, _ = by_partition(spread_by("header.id", 2, home=5), Batch.of([of_id(None)]))
    assert list(spread) == [1]


def test_records_of_a_partition_stay_in_order() -> None:
    records = [of_id(b"1", b"%d" % at, at) for at in range(5)]
    spread, _ = by_partition(spread_by("header.id", 2), Batch.of(records))
    assert spread == {1: records}


def test_an_id_that_cannot_be_read_is_dead_and_names_its_cause() -> None:
    good, poison = of_id(None, b'{"id":"1"}'), of_id(None, b'{"id":')
    batch = Batch([good, poison, good], [4, 7, 9])
    spread, (aside,) = by_partition(spread_by("value.id", 2), batch)
    assert spread == {1: [good, good]}
    assert (aside.cause, aside.operator, aside.record) == (7, "once", poison)
    assert aside.reason is Reason.UNDECODABLE


@pytest.mark.parametrize("says_runs", [True, False])
def test_it_is_said_where_a_record_came_from_and_how_far_its_partition_was(
    *, says_runs: bool
) -> None:
    readers = Readers()
    readers.says_runs = says_runs
    chain, spread = spread_by("header.id", 2, readers=readers)
    records = [of_id(b"1", offset=at)._replace(timestamp_ms=ms) for at, ms in ((7, 50), (8, 40))]
    chain.process(Batch.of(records))
    (part,) = spread.by_partition(Batch.of(records), 2)[0].values()
    # Those of the version before know what each record says, and nothing of runs.
    said = part.origins if says_runs else [read_origin(one.headers) for one in part.records]
    assert said == [(HOME, 7, 50), (HOME, 8, 50)]
    assert (part.records == records) is says_runs


def test_ids_are_hashed_as_by_aiokafka() -> None:
    luck = Random(1)
    for size in (*range(40), 999, 1_001):
        identity = luck.randbytes(size)
        assert murmur2(identity) == theirs(identity) & 0x7FFFFFFF


def test_a_release_without_a_record_is_as_far_as_the_partition() -> None:
    chain, spread = spread_by("header.id", 2)
    chain.process(Batch.of([of_id(b"1", offset=at)._replace(timestamp_ms=at) for at in (7, 9)]))
    released = Batch([of_id(b"1", offset=3), of_id(b"1", offset=4)], [NO_CAUSE, NO_CAUSE])
    (part,) = spread.by_partition(released, 2)[0].values()
    assert part.origins == [(HOME, 3, 9), (HOME, 4, 9)]


def test_a_place_that_was_given_no_record_is_told_the_time_once_a_second() -> None:
    clock = Clock()
    chain, spread = spread_by("header.id", 3, clock=clock)

    def told(
        state: int = AWAKE, *, urgent_before_ms: int = -1, by_others: Container[int] = ()
    ) -> dict[int, SourceTime]:
        said = spread.times(3, state, urgent_before_ms=urgent_before_ms, told=by_others)
        return dict(said)

    def read(at_ms: int) -> None:
        batch = Batch.of([of_id(b"1")._replace(timestamp_ms=at_ms)])
        chain.process(batch)
        spread.by_partition(batch, 3)

    read(50)
    assert told() == dict.fromkeys((1, 2), SourceTime(HOME, 50, AWAKE))
    read(60)
    assert told() == {}
    assert not spread.owes(urgent_before_ms=50)
    assert spread.owes(urgent_before_ms=51)
    clock.now_s += SAY_AGAIN_S
    assert spread.owes(urgent_before_ms=-1)
    assert told() == dict.fromkeys((1, 2), SourceTime(HOME, 60, AWAKE))
    assert not spread.owes(urgent_before_ms=99)
    read(70)
    assert told(urgent_before_ms=60) == {}
    assert told(urgent_before_ms=61) == dict.fromkeys((1, 2), SourceTime(HOME, 70, AWAKE))
    read(80)
    assert told(by_others={0, 2}) == {2: SourceTime(HOME, 80, AWAKE)}
    assert told(by_others={0, 2}) == {}
    assert told(IDLE) == dict.fromkeys((0, 1, 2), SourceTime(HOME, 80, IDLE))
    assert told(IDLE) == {}


def test_places_are_told_nothing_that_an_older_version_would_pass_on() -> None:
    readers = Readers()
    readers.says_origins = readers.says_runs = False
    chain, spread = spread_by("header.id", 2, readers=readers)
    batch = Batch.of([of_id(b"1")])
    chain.process(batch)
    (part,) = spread.by_partition(batch, 2)[0].values()
    assert (part.records, part.origins) == (batch.records, ())
    assert list(spread.times(2, IDLE, urgent_before_ms=99)) == []
    readers.says_origins = True
    assert spread.owes(urgent_before_ms=-1)
