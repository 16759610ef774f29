"""The error with which a sidecar ends, where brokers are to blame: one sentence of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaError,
)
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import (
    HeadraceError,
    KafkaRefused,
    KafkaUnreachable,
    StateCorrupt,
    StateUnavailable,
)
from headrace.services.group.member import TaskId
from headrace.services.kafka.limits import Limits
from headrace.services.runtime.standby.follower import Follower
from headrace.services.runtime.task.task import Task
from headrace.services.runtime.worker import Worker
from headrace.services.settings import Settings
from tests.runtime.test_tally import SPEC

SERVERS = "127.0.0.1:1"


async def ending_of(problem: Exception, folder: Path) -> BaseException:
    """The error with which a worker ends that fails of this."""
    settings = Settings(bootstrap_servers=SERVERS, state_folder=folder)
    worker = Worker(SPEC, settings, {"raw": 1}, Limits({}))
    await worker.work.restorer.start()
    worker.fail(problem)
    await worker.work.restorer.stop()
    with pytest.raises(Exception) as found:  # noqa: PT011 - it is what is looked at
        await worker.failed()
    return found.value


@pytest.mark.parametrize(
    ("problem", "kind", "sentence"),
    [
        (
            KafkaError("Unexpected error in join group"),
            KafkaUnreachable,
            f"the brokers at {SERVERS} answered, and then failed",
        ),
        (CorruptRecordException("damaged"), KafkaUnreachable, "CorruptRecordException"),
        (GroupAuthorizationFailedError("clicks"), KafkaRefused, "do not let the user"),
        (StateCorrupt("damaged"), StateCorrupt, "damaged"),
    ],
    ids=["unexpected", "damaged on its way", "no right", "ours"],
)
def test_a_worker_ends_with_an_error_of_ours_whatever_brokers_do(
    tmp_path: Path, problem: Exception, kind: type[HeadraceError], sentence: str
) -> None:
    ending = asyncio.run(ending_of(problem, tmp_path))
    assert type(ending) is kind
    assert sentence in str(ending)


def test_a_worker_ends_with_a_bug_of_ours_as_it_is(tmp_path: Path) -> None:
    bug = KeyError("a bug")
    assert asyncio.run(ending_of(bug, tmp_path)) is bug


class Copy(Follower):
    """A copy of which nothing is open."""

    def __init__(self, closed: list[str], problem: Exception | None = None) -> None:
        self._closed = closed
        self._problem = problem

    async def stop(self) -> None:
        """End with a problem, or a moment later without."""
        if self._problem is not None:
            raise self._problem
        await asyncio.sleep(0)
        self._closed.append("copy")


class Running(Task):
    """A task that commits as soon as it is told to close."""

    def __init__(self, closed: list[str]) -> None:
        self._closed = closed
        self._told = asyncio.Event()
        self.state = "running"

    def close(self) -> None:
        """Be told."""
        self._told.set()

    async def run(self) -> None:
        """Commit, and end."""
        await self._told.wait()
        self._closed.append("task")


def test_a_copy_that_cannot_be_closed_keeps_no_task_from_its_commit(tmp_path: Path) -> None:
    problem, closed = StateUnavailable("the disk is away"), list[str]()

    async def live() -> None:
        settings = Settings(bootstrap_servers=SERVERS, state_folder=tmp_path)
        worker = Worker(SPEC, settings, {"raw": 1}, Limits({}))
        await worker.work.restorer.start()
        copies = Copy(closed, problem), Copy(closed)
        worker.rebalance.followers = dict(zip((TaskId(0, 1), TaskId(0, 2)), copies, strict=True))
        source, task = TopicPartition("raw", 0), Running(closed)
        worker.tasks[source] = task
        worker._running[source] = asyncio.create_task(task.run())  # noqa: SLF001 - as `open` does
        await worker.close()
        await worker.failed()

    with pytest.raises(StateUnavailable) as ended:
        asyncio.run(live())
    assert ended.value is problem
    assert closed == ["copy", "task"]
