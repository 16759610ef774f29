"""The questions, to a broker alone and to a sidecar before it, while both are struck."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from headrace.services.broker.embedded import EmbeddedBroker
from tests.chance import seed_of_run
from tests.jepsen.check import anomalies
from tests.jepsen.history import End, History, Read, Write
from tests.jepsen.kafka import KafkaLog
from tests.jepsen.workload import Size, run
from tests.kafka.clients import FOREVER, Clients
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import MakePipeline, making_pipelines

PARTITIONS = 3
STRIKES = 4
pytestmark = pytest.mark.long("kill", why="what is struck, and when, is drawn")
SIZE = Size(rounds=1_000)
"""More than there is time for: the strikes decide how long it lasts."""


@pytest.fixture
def make_pipeline(tmp_path: Path) -> Iterator[MakePipeline]:
    def no_shared_broker() -> str:
        message = "these brokers are struck, so they are nobody else's"
        raise AssertionError(message)

    with making_pipelines(no_shared_broker, tmp_path) as make:
        yield make


def _history(log: KafkaLog, seed: int, strike: Callable[[], None]) -> History:
    """The workload in a thread, since brokers and sidecars belong to this one."""
    over = asyncio.Event()
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        loop = runner.get_loop()
        working = thread.submit(runner.run, run(log, seed, SIZE, over))
        try:
            strike()
        finally:
            loop.call_soon_threadsafe(over.set)
            wait([working])
    # A client whose broker was gone may leave warnings that are not about this test.
    gc.collect()
    return working.result()


def _assert_right(history: History, seed: int) -> None:
    commits = Counter(one.asked for one in history if isinstance(one, End) and one.outcome == "yes")
    writes = Counter(one.outcome for one in history if isinstance(one, Write))
    reads = sum(isinstance(one, Read) for one in history)
    told = f"seed {seed}: writes {dict(writes)}, transactions {dict(commits)}, {reads} reads"
    assert anomalies(history) == [], told
    assert writes["yes"] > 0, told
    assert reads > 0, told
    assert commits["commit"] > 0, told
    assert commits["abort"] > 0, told


def _wait_for_more(clients: Clients, topic: str, count: int) -> None:
    """Until so many more records stand in a topic: a strike is to meet somebody at work."""
    before = sum(clients.end_offsets(topic).values())
    clients.consume(topic, before // 2 + count, read_committed=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broker_that_is_frozen_keeps_what_it_acknowledged(
    kafka_own: OwnKafka,
) -> None:
    seed = seed_of_run()
    luck = random.Random(f"strikes {seed}")
    broker = kafka_own()
    clients = Clients(broker.bootstrap_servers)
    clients.make_topic("values", PARTITIONS, FOREVER)

    def settle() -> dict[int, int]:
        clients.consume_all("values")
        return clients.end_offsets("values", read_committed=True)

    def strike() -> None:
        for _ in range(STRIKES):
            _wait_for_more(clients, "values", 60)
            # Not killed: then one may leave a plain client's transaction open for ever (KIP-890).
            _freeze(broker, luck)
        _wait_for_more(clients, "values", 60)

    log = KafkaLog(broker.bootstrap_servers, PARTITIONS, "values", "values", settle)
    _assert_right(_history(log, seed, strike), seed)


def _freeze(broker: EmbeddedBroker, luck: random.Random) -> None:
    broker.pause()
    # The strike's own time; nothing is waited for.
    threading.Event().wait(luck.uniform(0.5, 3.0))
    broker.resume()


def test_a_sidecar_that_is_killed_and_frozen_carries_over_what_was_committed(
    kafka_own: OwnKafka, make_pipeline: MakePipeline
) -> None:
    seed = seed_of_run()
    luck = random.Random(f"strikes {seed}")
    broker = kafka_own({"group.min.session.timeout.ms": "1000"})
    pipeline = make_pipeline(
        "deduplicate: {by: key, interval: 1h}",
        partitions=PARTITIONS,
        servers=broker.bootstrap_servers,
    )
    settings = {"session_timeout": "2s", "transaction_timeout": "1500ms"}
    sidecar = pipeline.start(**settings)
    clients = pipeline.clients

    def settle() -> dict[int, int]:
        pipeline.wait_until_done()
        clients.consume_all(pipeline.sink)
        return clients.end_offsets(pipeline.sink, read_committed=True)

    def strike() -> None:
        nonlocal sidecar
        for _ in range(STRIKES):
            _wait_for_more(clients, pipeline.sink, 60)
            if luck.random() < 0.5:
                sidecar.kill()
                sidecar = pipeline.start(**settings)
            else:
                sidecar.pause()
                threading.Event().wait(luck.uniform(0.5, 3.0))
                sidecar.resume()
        _wait_for_more(clients, pipeline.sink, 60)

    pipeline.wait_until(lambda: pipeline.sink in clients.topics(), "the cleaned topic")
    log = KafkaLog(broker.bootstrap_servers, PARTITIONS, pipeline.source, pipeline.sink, settle)
    _assert_right(_history(log, seed, strike), seed)
    assert sidecar.stop() == 0
