"""The records that a sidecar must have written, by the oracles, given the source's records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from random import Random
from threading import Event, Thread

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headrace.contracts.record import Record, offset_of
from tests.properties.compose import expected_of_chain
from tests.runtime.sidecar import Content, Offsets, Pipeline, Sidecar, contents, record

REORDER_AND_DEDUPLICATE = (
    "reorder: {grace: 5s}",
    "deduplicate: {by: key+id, id: header.id, interval: 20s}",
)
"""Everything that an oracle judges by: records that are held, and ids that are remembered."""
LONG = {"commit_interval": "5m", "memory": "1GiB"}
"""A commit comes neither by time nor by what is open, soon."""
FOR_EVER = "10m"
"""A transaction that nobody ends is open until the test has failed."""


def some_records(
    count: int, seed: int, partitions: int = 1, *, start_ms: int = 0, value_bytes: int = 0
) -> list[Record]:
    """A stream with duplicates and disorder; a later start goes on where an earlier one ended."""
    luck = Random(seed)
    made = []
    for index in range(count):
        key = b"k%d" % luck.randrange(20)
        identity = b"%d" % luck.randrange(8)
        at_ms = start_ms + index * 40 + luck.choice((0, 0, 100, -2_000, -9_000))
        value = (b"%d-%d" % (start_ms, index)).ljust(value_bytes, b".")
        made.append(record(key, value, max(0, at_ms), (("id", identity),), index % partitions))
    return made


def large_records(count: int, partitions: int, start_ms: int = 0) -> list[Record]:
    """Few of them fill a batch, which leaves before the commit; each leaves a reorder soon."""
    return [
        record(
            b"k",
            b"%d" % at_ms + bytes(100_000),
            at_ms,
            (("id", b"%d" % at_ms),),
            index % partitions,
        )
        for index, at_ms in enumerate(range(start_ms, start_ms + count * 1_000, 1_000))
    ]


def expected_of(pipeline: Pipeline, committed: Offsets | None = None) -> list[Content]:
    """The cleaned topic of a pipeline of one hop that has read its source, or so much of it."""
    policies = pipeline.spec.operators
    raw = [
        one
        for one in pipeline.clients.consume_all(pipeline.source)
        if committed is None or offset_of(one) < committed[one.topic, one.partition]
    ]
    cleaned: list[Content] = []
    for partition, records in by_partition(raw).items():
        outputs = expected_of_chain(policies, records).outputs
        cleaned += [
            (out.key, out.value, out.timestamp_ms, out.headers, partition) for out in outputs
        ]
    return cleaned


def by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Records of each partition, in order."""
    found: dict[int, list[Record]] = {}
    for one in records:
        found.setdefault(one.partition, []).append(one)
    return dict(sorted(found.items()))


def assert_cleaned(pipeline: Pipeline, committed: Offsets | None = None) -> None:
    """The cleaned topic is what the oracles say, record by record."""
    expected, cleaned = expected_of(pipeline, committed), contents(pipeline.cleaned())
    assert expected, "nothing is expected, so nothing would be seen"
    lost, doubled = Counter(expected) - Counter(cleaned), Counter(cleaned) - Counter(expected)
    assert (list(lost), list(doubled)) == ([], []), (
        f"{lost.total()} lost, {doubled.total()} doubled"
    )
    assert cleaned == expected, "they left in another order"


@contextmanager
def stream(pipeline: Pipeline, partitions: int) -> Iterator[None]:
    """Records come all the while, whenever the broker takes any."""
    over = Event()
    producing = Thread(target=lambda: asyncio.run(_produce(pipeline, partitions, over)))
    producing.start()
    try:
        yield
    finally:
        over.set()
        producing.join()


async def _produce(pipeline: Pipeline, partitions: int, over: Event) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=pipeline.servers, enable_idempotence=True
    ) as producer:
        for step in count():
            # The records that the broker took count, whatever it answered: expectations are made of
            # them.
            with suppress(KafkaError):
                for one in some_records(100, step, partitions, start_ms=step * _STEP_MS):
                    await producer.send(
                        pipeline.source,
                        one.value,
                        one.key,
                        one.partition,
                        one.timestamp_ms,
                        list(one.headers),
                    )
                await producer.flush()
            if over.is_set():
                return
            await asyncio.sleep(_PAUSE_S)


_STEP_MS = 4_000
_PAUSE_S = 0.3


def wait_until_all_move(pipeline: Pipeline, partitions: int) -> None:
    """Wait until every partition of a source that grows is committed further than now."""
    before = pipeline.committed()
    places = [(pipeline.source, number) for number in range(partitions)]
    pipeline.wait_until_committed({place: before.get(place, 0) + 1 for place in places})


def has_open_records(pipeline: Pipeline) -> bool:
    """Whether a transaction stands open in every partition."""
    clients, topic = pipeline.clients, pipeline.sink
    ends, readable = clients.end_offsets(topic), clients.end_offsets(topic, read_committed=True)
    return all(readable[number] < end for number, end in ends.items())


def wait_until_running(pipeline: Pipeline, sidecar: Sidecar, partitions: int) -> None:
    """Until each partition has named its producer: that commits for all, whatever the interval."""
    pipeline.wait_until(lambda: sidecar.log.count("] running ") == partitions, "all run")
