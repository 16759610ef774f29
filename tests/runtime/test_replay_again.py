"""A replay that is run again and again: brokers remember for a week which letters went back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiokafka.structs import TopicPartition

from headrace.contracts.record import Record
from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.runtime.test_replay_dead import Dying, dying_on


def test_a_replay_without_letters_says_again_how_far_it_is(
    kafka_own: OwnKafka, tmp_path: Path
) -> None:
    dying = dying_on(SharedKafka(kafka_own().bootstrap_servers), tmp_path)
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
