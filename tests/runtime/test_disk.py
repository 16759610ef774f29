"""Only a copy on the disk that a task would go on from is told to the group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition

from headrace.contracts.topics import TOMBSTONES_KEPT_MS
from headrace.services.group.member import TaskId
from headrace.services.kafka.identities import Identity
from headrace.services.runtime.standby.disk import Copy, copies_on_disk, lags_of, lags_on_disk
from headrace.services.runtime.task.work import Work
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory
from tests.runtime.test_tally import HOP, SPEC
from tests.runtime.working import working

HALF_MS = TOMBSTONES_KEPT_MS // 2


def _leave_a_copy(work: Work, partition: int, written_ms: int) -> None:
    folder = work.folder / HOP.name / str(partition)
    state = PartitionState(folder, "clicks", RocksMemory(8 << 20), written_ms, "one")
    state.reach(41, 5_000)
    state.commit(7, written_ms)
    state.close()


@pytest.mark.parametrize(
    ("age_ms", "is_told"),
    [(0, True), (HALF_MS - 60_000, True), (HALF_MS + 60_000, False), (-HALF_MS - 60_000, False)],
    ids=["new", "trusted", "too old", "from the future"],
)
def test_a_copy_that_would_be_thrown_away_is_not_told(
    tmp_path: Path, age_ms: int, *, is_told: bool
) -> None:
    async def found() -> list[Copy]:
        async with working(SPEC, tmp_path) as work:
            _leave_a_copy(work, 3, work.now_ms() - age_ms)
            return list(copies_on_disk(work))

    assert asyncio.run(found()) == [Copy(TaskId(0, 3), 7, "one")] * is_told


def test_a_copy_of_a_changelog_that_is_gone_lacks_all_of_the_one_that_there_is() -> None:
    of_this, of_another, of_some = (
        Copy(TaskId(0, number), 700, changelog_id)
        for number, changelog_id in enumerate(("new", "old", None))
    )
    ends = {TaskId(0, 0): 710, TaskId(0, 1): 400, TaskId(0, 2): 690}
    copies = of_this, of_another, of_some
    assert lags_of(copies, ["new"], ends) == {TaskId(0, 0): 10, TaskId(0, 2): 0}
    # Old brokers name no ids.
    assert lags_of(copies, [None], ends).keys() == ends.keys()


def test_copies_are_told_beside_those_of_partitions_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def topics() -> dict[str, Identity]:
        return {HOP.changelog.name: Identity("one", 2)}

    async def ends(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if any(one.partition >= 2 for one in partitions):
            # aiokafka asks again and again about a partition that no broker names.
            raise TimeoutError
        return dict.fromkeys(partitions, 10)

    async def told() -> dict[TaskId, int]:
        async with working(SPEC, tmp_path) as work:
            for partition in (1, 3):
                _leave_a_copy(work, partition, work.now_ms())
            monkeypatch.setattr(work.identities, "now", topics)
            monkeypatch.setattr(work.restorer, "ends", ends)
            return await lags_on_disk(work)

    assert asyncio.run(told()) == {TaskId(0, 1): 3}
