"""Copies of state: until when each was kept up, and whose it is once it is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from unittest.mock import patch

import faust
import pytest
from aiokafka.consumer import fetcher
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.topics import TOMBSTONES_KEPT_MS
from headrace.services.group.info import INFO_VERSION
from headrace.services.group.member import Share, TaskId
from headrace.services.group.round import Heard
from headrace.services.kafka.identities import Identity
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.topics import prepare_topics
from headrace.services.runtime.changelog.restorer import Take
from headrace.services.runtime.input.fetched import Fetched, Records
from headrace.services.runtime.machine.folder import held
from headrace.services.runtime.rebalance import Rebalance
from headrace.services.runtime.standby import follower
from headrace.services.runtime.standby.follower import KeptUp
from headrace.services.runtime.task.table import StateTable
from headrace.services.runtime.task.work import Work
from headrace.services.settings import Settings
from headrace.services.state.changelog import POSITION
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksStore
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record
from tests.runtime.test_tally import HOP, SPEC
from tests.runtime.working import working

PATIENCE_S = 120.0


def test_a_copy_that_lags_is_not_kept_up() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=10, end=100, told_at_ms=1_000) is None
    assert kept_up.until_ms(reached=99, end=900, told_at_ms=2_000) is None
    # It has what there was at the first look, and by far not what there is now.
    assert kept_up.until_ms(reached=100, end=5_000, told_at_ms=3_000) == 1_000
    assert kept_up.until_ms(reached=200, end=6_000, told_at_ms=4_000) is None
    assert kept_up.until_ms(reached=6_001, end=7_000, told_at_ms=5_000) == 4_000


def test_a_copy_that_has_all_is_kept_up_until_now() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=100, end=100, told_at_ms=1_000) == 1_000
    assert kept_up.until_ms(reached=100, end=100, told_at_ms=2_000) == 2_000


def test_a_copy_of_a_quiet_changelog_has_all_whatever_it_lacked_before() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=10, end=100, told_at_ms=1_000) is None
    # The next look came with the next record, long after the copy had read all.
    assert kept_up.until_ms(reached=100, end=100, told_at_ms=90_000_000) == 90_000_000


def test_a_copy_that_was_kept_up_since_it_was_rebuilt_is_rebuilt_again(tmp_path: Path) -> None:
    async def live() -> None:
        failed = asyncio.get_running_loop().create_future()
        async with working(SPEC, tmp_path) as work:
            names, now_ms = {HOP.changelog.name: Identity(None, 1)}, count(work.now_ms())
            kept_up_until_ms = iter((None, 1 << 62, None))
            told: list[tuple[int, int, int] | None] = []

            async def now() -> dict[str, Identity]:
                return names

            async def follow(_changelog: TopicPartition, _start: int, take: Take) -> None:
                until_ms = next(kept_up_until_ms)
                told[:] = [None if until_ms is None else (1, 1, until_ms)]
                take([], 0)
                raise StateCorrupt(str(until_ms))

            for one, as_told in (
                (work.identities, {"now": now}),
                (work.restorer, {"follow": follow, "told": lambda _: told[0]}),
            ):
                vars(one).update(as_told)
            with (
                patch.object(follower, "_SAY_EVERY_S", -1.0),
                patch.object(work, "now_ms", lambda: next(now_ms)),
            ):
                copy = follower.Follower(work, HOP, 0, failed.set_result)
                copy.start()
                # The third time it was not kept up since, so its changelog is damaged.
                assert str(await failed) == "None"
            assert next(kept_up_until_ms, "asked for all") == "asked for all"

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


def test_a_copy_that_cannot_be_written_any_more_is_closed_all_the_same(tmp_path: Path) -> None:
    async def live() -> None:
        async with working(SPEC, tmp_path) as work:
            opened = asyncio.Event()
            failures: list[BaseException] = []

            async def now() -> dict[str, Identity]:
                return {HOP.changelog.name: Identity(None, 1)}

            async def follow(*_: object) -> None:
                opened.set()
                await asyncio.Event().wait()

            for one, as_told in (
                (work.identities, {"now": now}),
                (work.restorer, {"follow": follow, "told": lambda _: (1, 1, 1 << 62)}),
            ):
                vars(one).update(as_told)
            copy = follower.Follower(work, HOP, 0, failures.append)
            copy.start()
            await opened.wait()
            with (
                patch.object(PartitionState, "keep_up", side_effect=OSError(28, "disk full")),
                pytest.raises(OSError, match="disk full"),
            ):
                await copy.stop()
            # RocksDB opens a database once at a time.
            await work.tables[HOP.name].open(0, work.now_ms())
            await work.tables[HOP.name].close(0)
            assert not failures

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


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


LEARNED = TaskId(0, 0)


@asynccontextmanager
async def learning(kafka: SharedKafka, folder: Path) -> AsyncIterator[tuple[Work, Rebalance]]:
    """A member of a group that learns a task, and knows how far it is."""
    topic = await asyncio.to_thread(kafka.clients.make_topic, fresh_name("raw"))
    spec = PipelineSpec.model_validate(
        {
            "pipeline": topic,
            "source": {"topic": topic},
            "operators": [{"deduplicate": {"by": "key", "interval": "1m"}}],
            "sink": {"topic": fresh_name("cleaned")},
        }
    )
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers, state_folder=folder)
    await prepare_topics(spec, settings)
    tasks, (hop,) = Cancelled(), spec.hops()
    work = Work(spec, settings, pytest.fail, tasks.fail, tasks.open, Limits({}))
    app = faust.App(topic, broker="kafka://127.0.0.1:1", store="memory://")
    work.tables[hop.name] = StateTable(app, hop.name, work.folder / hop.name, work.memory)
    with held(work.folder):
        await work.restorer.start()
        rebalance = Rebalance(work, tasks, {topic: 1})
        await rebalance.told(_heard(Share(learners=frozenset({LEARNED}))))
        while rebalance.copies()[0].lag is None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        yield work, rebalance
        await rebalance.close()
        await work.restorer.stop()


def test_a_copy_handed_over_to_a_task_that_never_opened_it_is_closed(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    async def live() -> None:
        async with learning(kafka, tmp_path) as (work, rebalance):
            await rebalance.told(_heard(Share(active=frozenset({LEARNED}))))
            await rebalance.thrown_out()
            folder = work.folder / work.spec.hops()[0].name / "0"
            with closing(RocksStore(folder, work.memory)):
                "nobody else has it open"

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


def test_a_copy_that_was_cut_off_for_longer_than_deletions_are_kept_is_made_anew(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    async def live() -> None:
        async with learning(kafka, tmp_path) as (work, rebalance):
            changelog = work.spec.hops()[0].changelog.name
            copy = rebalance.followers[LEARNED]

            async def follows_to(offset: int) -> PartitionState:
                commit = record(POSITION, bytes(16), 1_000)
                await asyncio.to_thread(kafka.clients.produce, changelog, [commit])
                while True:
                    state = copy._state  # noqa: SLF001 - nothing tells of it
                    if state is not None and state.changelog_position == offset:
                        return state
                    await asyncio.sleep(0.01)

            first = await follows_to(1)
            assert await follows_to(2) is first
            now_ms, slept_ms = work.now_ms, TOMBSTONES_KEPT_MS
            with patch.object(work, "now_ms", lambda: now_ms() + slept_ms):
                anew = await follows_to(3)
                assert anew is not first
                assert await follows_to(4) is anew

    with (
        patch.object(fetcher, "PartitionRecords", Records),
        patch.object(fetcher, "MemoryRecords", Fetched),
    ):
        asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


def _heard(share: Share) -> Heard:
    return Heard(share, frozenset(), {}, INFO_VERSION, joins_at_once=False)
