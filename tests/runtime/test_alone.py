"""Tests that are alone with a broker: it falls silent, goes away, or hears of nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import KafkaUnreachable
from headrace.contracts.record import Record
from headrace.services.admin.rebuild import rebuild
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.kafka.cluster import connected
from headrace.services.kafka.security import client_options
from headrace.services.runtime.changelog.restorer import Restorer
from headrace.services.settings import Settings
from headrace.services.state.changelog import POSITION, Restoration
from tests.kafka.clients import FOREVER, Clients
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.kafka.sharing import is_there
from tests.runtime.sidecar import record
from tests.runtime.test_replay_dead import Dying, dying_on

PATIENCE_S = 120.0
ROWS = 16
"""Of 900 KB each: more than a consumer has fetched when it hands on the first."""


@pytest.fixture(scope="module")
def one_for_all(kafka_own_of_module: OwnKafka) -> EmbeddedBroker:
    # A broker that was frozen for long is not shut out, and lost by the next test.
    return kafka_own_of_module({"broker.session.timeout.ms": "120000"})


@pytest.fixture
def broker(one_for_all: EmbeddedBroker) -> EmbeddedBroker:
    """A broker that runs, whatever became of it before; none of these tests is a group's member."""
    if not is_there(one_for_all.bootstrap_servers):
        one_for_all.start()
    return one_for_all


def test_a_stop_is_heard_while_the_end_of_a_commit_is_looked_for_on_a_silent_broker(
    broker: EmbeddedBroker,
) -> None:
    clients = Clients(broker.bootstrap_servers)
    clients.make_topic("changelog")
    clients.produce(
        "changelog", [record(b"\x01r%d" % number, b"torn", 1_000) for number in range(25_000)]
    )

    def take(_records: list[Record], _counts_before: int) -> int:
        broker.pause()
        return 5 << 20

    async def live() -> None:
        failures: list[BaseException] = []
        settings = Settings(bootstrap_servers=broker.bootstrap_servers)
        restorer = Restorer(client_options(settings, "restore"), failures.append)
        await restorer.start()
        place = TopicPartition("changelog", 0)
        restored = asyncio.ensure_future(restorer.restore(place, 0, take, is_last=True))
        while restorer.lag(place) != 15_000:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        await asyncio.wait_for(restorer.stop(), PATIENCE_S)
        with pytest.raises(KafkaError, match="the restorer was stopped"):
            await restored
        assert failures == []

    try:
        asyncio.run(live())
    finally:
        broker.resume()


def test_a_replay_without_letters_says_again_how_far_it_is(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    dying = dying_on(SharedKafka(broker.bootstrap_servers), tmp_path)
    dying.die([Record(b"key", b"value", 1_000, (), dying.source, 0, 0)])
    dying.replay()
    written = _commits_ever(dying)
    assert dying.replay(really=False) == {}
    assert _commits_ever(dying) == written
    assert dying.replay() == {}
    # Brokers keep an offset for a week behind its last commit, however often it was looked at.
    assert _commits_ever(dying) > written
    assert dying.replay() == {}


def _commits_ever(dying: Dying) -> int:
    """How often a broker of our own was told how far a group is."""

    async def count() -> int:
        async with connected(Settings(bootstrap_servers=dying.kafka.bootstrap_servers)) as cluster:
            # It answers once the end of the last transaction stands there, too.
            letters = [TopicPartition(dying.spec.dead.topic, number) for number in range(2)]
            await cluster.committed(f"{dying.spec.pipeline}.replay-dead", letters)
            ends = await cluster.ends("__consumer_offsets")
            return sum(one.end for one in ends.values())

    return asyncio.run(count())


def test_brokers_that_go_away_meanwhile_are_a_sentence(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(
        "pipeline: clicks\nsource: {topic: raw}\noperators: [table: {}]\nsink: {topic: cleaned}\n"
    )
    spec = load_pipeline(file)
    changelog = spec.hops()[0].changelog.name
    clients = Clients(broker.bootstrap_servers)
    clients.make_topic(changelog, 1, FOREVER)
    rows = [
        Record(b"\x05tablek%d" % n, b"r" * 900_000, 0, (), changelog, 0, n) for n in range(ROWS)
    ]
    end = Record(POSITION, bytes(16), 0, (), changelog, 0, ROWS)
    for row in (*rows, end):
        clients.produce(changelog, [row])
    take = Restoration.take

    def take_and_stop(restoration: Restoration, *given: object) -> int:
        broker.stop()
        return take(restoration, *given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Restoration, "take", take_and_stop)
    settings = Settings(bootstrap_servers=broker.bootstrap_servers, stall_timeout_ms=1_000)
    with pytest.raises(KafkaUnreachable, match="no record of a changelog for 1s; try again"):
        asyncio.run(rebuild(spec, settings, None, lambda *_: None))
