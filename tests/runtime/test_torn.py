"""No transaction is torn: whatever becomes of one of its requests, nothing is lost or doubled.

And at least once, an instance that is cut off sends nothing behind its successor.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, ProducerFenced
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition

from headrace.contracts.hops import transactional_prefix
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.group.term import NEVER_S
from headrace.services.kafka.fenced import Discarding, GivenUpError, now_s
from headrace.services.kafka.limits import Limits
from headrace.services.runtime.machine.folder import client_of
from headrace.services.runtime.output.fenced_producer import Fence, FencedProducer
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.shared_producers import PRODUCERS
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    expected_of,
    some_records,
    stream,
    wait_until_all_move,
)
from tests.runtime.proxy import METADATA, OFFSET_COMMIT, How, Kind, Proxy, proxied
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar, contents, record

AT_LEAST = {"guarantee": "at-least-once", "heartbeat_interval": "100ms"}
SHORT = {**AT_LEAST, "session_timeout": "2s"}
GIVEN_UP = "what was not committed is given up"
ONE = [record(b"k", b"v", 1_000)]
PATIENCE_S = 120.0
TWIN = pytest.mark.long("outages", why="its twin is cut off at the request before or behind it")
STRIKES = [
    # The next transaction is open, and nothing written; the cleaned records are, and not yet the
    # changelog; all but the offsets; all.
    (How.LATE, Kind.PRODUCE, 0),
    (How.LATE, Kind.PRODUCE, 1),
    (How.LATE, Kind.TXN_OFFSET_COMMIT, 0),
    (How.LATE, Kind.END_TXN, 0),
    (How.UNANSWERED, Kind.PRODUCE, 0),
    (How.LOST, Kind.PRODUCE, 0),
    (How.SLOW, Kind.PRODUCE, 0),
]


@pytest.fixture(scope="module")
def between(kafka_own_of_module: OwnKafka) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    # A broker that some tests freeze is not shut out, and lost by the next test.
    stays = {"broker.session.timeout.ms": "120000"}
    with proxied(kafka_own_of_module, {"group.min.session.timeout.ms": "1000", **stays}) as made:
        yield made


MORE = pytest.mark.long("outages", why="each kind of request takes ten seconds")


@pytest.mark.parametrize(
    "kind", [one if one is Kind.END_TXN else pytest.param(one, marks=MORE) for one in Kind]
)
def test_no_record_is_lost_or_doubled_whatever_becomes_of_a_request(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline, kind: Kind
) -> None:
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    sidecar = pipeline.start(bootstrap_servers=proxy.address)
    with stream(pipeline, 1):
        for how, before, passes in STRIKES:
            wait_until_all_move(pipeline, 1)
            strike = proxy.strike(kind, how, before, passes)
            if kind is Kind.INIT_PRODUCER_ID:
                assert sidecar.stop() == 0
                sidecar = pipeline.start(bootstrap_servers=proxy.address)
            strike.wait()
        wait_until_all_move(pipeline, 1)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


def cleaning_behind(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> tuple[Pipeline, Sidecar]:
    """A sidecar that has cleaned some records behind the proxy, which has forgotten all others."""
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    proxy.carried.clear()
    proxy.asked_for_all_topics = 0
    sidecar = pipeline.start(bootstrap_servers=proxy.address)
    pipeline.produce(some_records(100, 1))
    pipeline.wait_until_done()
    return pipeline, sidecar


def test_an_instance_that_is_fenced_writes_no_offset_outside_of_a_transaction(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> None:
    proxy = between[1]
    pipeline, sidecar = cleaning_behind(between, make_pipeline)
    asyncio.run(fence(pipeline))
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    sidecar.wait_for("back to what is committed")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "took over" not in sidecar.log
    assert_cleaned(pipeline)
    assert Kind.TXN_OFFSET_COMMIT in proxy.carried
    assert OFFSET_COMMIT not in proxy.carried


def test_an_instance_asks_for_its_own_topics_alone(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> None:
    proxy = between[1]
    _, sidecar = cleaning_behind(between, make_pipeline)
    assert sidecar.stop() == 0
    assert METADATA in proxy.carried
    # A cluster may have a hundred thousand.
    assert proxy.asked_for_all_topics == 0


async def fence(pipeline: Pipeline) -> None:
    """Take every transactional id of an instance."""
    client = client_of(pipeline.folder_of().parents[1])
    prefix = transactional_prefix(pipeline.name, pipeline.spec.hops()[0])
    for number in range(PRODUCERS):
        async with AIOKafkaProducer(
            bootstrap_servers=pipeline.servers,
            transactional_id=f"{prefix}shared-{client.hex()}-{number}",
        ):
            pass


@pytest.mark.parametrize(
    "acknowledged", [0, pytest.param(1, marks=TWIN)], ids=["output", "changelog"]
)
def test_an_instance_that_was_cut_off_sends_nothing_behind_its_successor(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline, acknowledged: int
) -> None:
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    pipeline.produce(some_records(100, 1))
    cut_off = pipeline.start("one", bootstrap_servers=proxy.address, **SHORT)
    pipeline.wait_until_done()
    successor = pipeline.start("two", **SHORT)
    successor.wait_for("the group has shared out its partitions")
    strike = proxy.cut_off(Kind.PRODUCE, passes=acknowledged)
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    strike.wait()
    pipeline.wait_until_done()
    written = ends(pipeline)
    proxy.restore()
    cut_off.wait_for("it was counted out, and is back")
    pipeline.wait_until(lambda: cut_off.log.count("shared out its partitions") > 1, "its return")
    assert ends(pipeline) == written
    assert cut_off.stop() == successor.stop() == 0


def ends(pipeline: Pipeline) -> list[dict[int, int]]:
    """Where the changelog and the cleaned topic end."""
    topics = pipeline.spec.hops()[0].changelog.name, pipeline.sink
    return [pipeline.clients.end_offsets(topic) for topic in topics]


@pytest.mark.parametrize(
    "acknowledged", [pytest.param(0, marks=TWIN), 1], ids=["output", "changelog"]
)
def test_an_instance_that_is_back_within_its_session_loses_nothing(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline, acknowledged: int
) -> None:
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    pipeline.produce(some_records(100, 1))
    settings = {**AT_LEAST, "session_timeout": "4s", "bootstrap_servers": proxy.address}
    first = pipeline.start("one", **settings)
    pipeline.wait_until_done()
    strike = proxy.cut_off(Kind.PRODUCE, passes=acknowledged)
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    strike.wait()
    first.wait_for(GIVEN_UP)
    proxy.restore()
    pipeline.wait_until_done()
    assert first.stop() == 0
    # Another folder has the state that the changelog has.
    pipeline.produce(some_records(100, 3, start_ms=16_000))
    second = pipeline.start("two", **AT_LEAST)
    pipeline.wait_until_done()
    assert second.stop() == 0
    expected, cleaned = Counter(expected_of(pipeline)), Counter(contents(pipeline.cleaned()))
    assert expected
    assert expected - cleaned == Counter()
    assert cleaned.keys() == expected.keys()


class Group:
    """A group that says until when to send."""

    def __init__(self) -> None:
        """For long."""
        self.until_s = now_s() + PATIENCE_S

    async def count(self) -> None:
        """Count the instance."""


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    return kafka.clients.make_topic(fresh_name("out"), 1, FOREVER)


def fence_of(kafka: SharedKafka, group: Group) -> Fence:
    # Longer than a test waits: it is the fence that ends a wait.
    client = {"bootstrap_servers": kafka.bootstrap_servers, "request_timeout_ms": 600_000}
    return Fence(client, lambda: group.until_s, group.count)


async def started(fence: Fence) -> Outbox:
    """One partition's way out."""
    out = Outbox(FencedProducer(fence, TopicPartition("source", 0)), Limits({}))
    await out.start()
    await out.begin()
    return out


async def write(out: Outbox, topic: str) -> None:
    await out.send(topic, 0, ONE)
    await out.settle()


def is_on_its_way(out: Outbox) -> bool:
    """Whether a batch was written that no broker has answered."""
    connections = out._way.producer.client._conns.values()  # noqa: SLF001
    asked = [request for one in connections for _, request, _ in one._requests]  # noqa: SLF001
    return any(request.API_KEY == ProduceRequest.API_KEY for request in asked)


def test_a_producer_sends_nothing_once_the_group_may_give_its_partition_away(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        group = Group()
        fence = fence_of(kafka, group)
        out = await started(fence)
        await write(out, topic)
        group.until_s = NEVER_S
        with pytest.raises(GivenUpError):
            await write(out, topic)
        with pytest.raises(GivenUpError):
            await out.begin()
        await out.stop()
        with pytest.raises(GivenUpError):
            await started(fence)
        group.until_s = now_s() + PATIENCE_S
        await fence.until_open()
        out = await started(fence)
        await write(out, topic)
        await out.stop()
        fence.stop()

    asyncio.run(live())
    assert len(kafka.clients.consume_all(topic)) == 2


def is_queued_again(out: Outbox) -> bool:
    """Whether a batch that has failed waits in the queue of what is sent next."""
    return bool(out._way.producer._message_accumulator._batches)  # noqa: SLF001


@pytest.mark.parametrize("batch", ["on its way", "about to be queued again", "queued again"])
def test_a_fence_ends_the_wait_for_what_no_broker_answers(
    between: tuple[EmbeddedBroker, Proxy],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    batch: str,
) -> None:
    said: list[str] = []
    # A record of the log would hold the batch until the test is over.
    monkeypatch.setattr("aiokafka.producer.sender.log.warning", lambda text, *_: said.append(text))
    broker, _ = between
    kafka = SharedKafka(broker.bootstrap_servers)
    topic = kafka.clients.make_topic(fresh_name("out"), 1, FOREVER)

    async def live() -> None:
        group = Group()
        fence = fence_of(kafka, group)
        out = await started(fence)
        await write(out, topic)
        broker.pause()
        writing = asyncio.ensure_future(write(out, topic))
        await until(lambda: is_on_its_way(out))
        if batch != "on its way":
            for connection in [*out._way.producer.client._conns.values()]:  # noqa: SLF001
                connection.close()
            # The sender says so, and waits a moment before it queues the batch again.
            await until(lambda: bool(said))
        if batch == "queued again":
            await until(lambda: is_queued_again(out))
        group.until_s = NEVER_S
        if batch != "on its way":
            # The fence would look within a tenth of a second, and the sender would be elsewhere.
            await out._way.abandon()  # noqa: SLF001
        with pytest.raises(GivenUpError):
            await asyncio.wait_for(writing, PATIENCE_S)
        await out.stop()
        fence.stop()

    try:
        asyncio.run(live())
    finally:
        broker.resume()
    gc.collect()  # a failure that nobody asked for says so when it is found
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until a batch is somewhere."""
    while not is_so():  # noqa: ASYNC110 - aiokafka does not tell
        await asyncio.sleep(0)


def test_brokers_refuse_what_an_instance_has_sent_before_it_gave_it_up(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        fence = fence_of(kafka, Group())
        before = await started(fence)
        await write(before, topic)
        after = await started(fence)
        await write(after, topic)
        with pytest.raises(ProducerFenced):
            await write(before, topic)
        await write(after, topic)
        await before.stop()
        await after.stop()
        fence.stop()

    asyncio.run(live())
    assert len(kafka.clients.consume_all(topic)) == 3


def test_a_connection_that_is_closed_delivers_nothing_any_more() -> None:
    async def live() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        has_begun = asyncio.Event()

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            has_begun.set()
            try:
                await reader.read()
            except ConnectionResetError as reset:
                ended.set_exception(reset)
            else:
                ended.set_result(None)
            writer.close()

        async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
            connection = Discarding("127.0.0.1", server.sockets[0].getsockname()[1])
            connecting = asyncio.ensure_future(connection.connect())
            await has_begun.wait()
            connection.close()
            with pytest.raises(KafkaConnectionError):
                await connecting
            with pytest.raises(ConnectionResetError):
                await ended

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
