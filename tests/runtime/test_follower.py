"""Copies of state: until when each was kept up, and whose it is once it is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import faust
import pytest
from aiokafka.structs import TopicPartition

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.group.info import INFO_VERSION
from headrace.services.group.member import Share, TaskId
from headrace.services.group.round import Heard
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.topics import prepare_topics
from headrace.services.runtime.machine.folder import held
from headrace.services.runtime.rebalance import Rebalance
from headrace.services.runtime.standby.follower import KeptUp
from headrace.services.runtime.task.table import StateTable
from headrace.services.runtime.task.work import Work
from headrace.services.settings import Settings
from headrace.services.state.rocks import RocksStore
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka

PATIENCE_S = 120.0


def test_a_copy_that_lags_is_not_kept_up() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=10, end=100, now_ms=1_000) is None
    assert kept_up.until_ms(reached=99, end=900, now_ms=2_000) is None
    # It has what there was at the first look, and by far not what there is now.
    assert kept_up.until_ms(reached=100, end=5_000, now_ms=3_000) == 1_000
    assert kept_up.until_ms(reached=200, end=6_000, now_ms=4_000) is None
    assert kept_up.until_ms(reached=6_001, end=7_000, now_ms=5_000) == 4_000


def test_a_copy_that_has_all_is_kept_up_until_now() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=100, end=100, now_ms=1_000) == 1_000
    assert kept_up.until_ms(reached=100, end=100, now_ms=2_000) == 2_000


class Cancelled:
    """Tasks that end before they have opened anything."""

    def open(self, source: TopicPartition) -> None:
        """Leave its database as it is."""

    async def release(self, sources: list[TopicPartition], *, commits: bool) -> None:
        """Close none, since none is open."""

    async def route(self, sources: Iterable[TopicPartition]) -> None:
        """Take no records."""

    def ask_for_rebalance(self) -> None:
        """The group is told all it needs by the test."""

    def fail(self, problem: BaseException) -> None:
        """Let the test fail."""
        raise problem


def test_a_copy_handed_over_to_a_task_that_never_opened_it_is_closed(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    topic = kafka.clients.make_topic(fresh_name("raw"))
    spec = PipelineSpec.model_validate(
        {
            "pipeline": topic,
            "source": {"topic": topic},
            "operators": [{"deduplicate": {"by": "key", "interval": "1m"}}],
            "sink": {"topic": fresh_name("cleaned")},
        }
    )
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers, state_folder=tmp_path)

    async def live() -> None:
        await prepare_topics(spec, settings)
        tasks, (hop,) = Cancelled(), spec.hops()
        work = Work(spec, settings, pytest.fail, tasks.fail, tasks.open, Limits({}))
        app = faust.App(topic, broker="kafka://127.0.0.1:1", store="memory://")
        folder = work.folder / hop.name
        work.tables[hop.name] = StateTable(app, hop.name, folder, work.memory)
        with held(work.folder):
            await work.restorer.start()
            rebalance = Rebalance(work, tasks, {topic: 1})
            one = frozenset({TaskId(0, 0)})
            await rebalance.told(_heard(Share(learners=one)))
            while rebalance.copies()[0].lag is None:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            await rebalance.told(_heard(Share(active=one)))
            await rebalance.thrown_out()
            with closing(RocksStore(folder / "0", work.memory)):
                "nobody else has it open"
            await rebalance.close()
            await work.restorer.stop()

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


def _heard(share: Share) -> Heard:
    return Heard(share, frozenset(), {}, INFO_VERSION, joins_at_once=False)
