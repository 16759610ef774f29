"""A task's answer to a failure, and what the log says of it."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from aiokafka.errors import LeaderNotAvailableError

from headrace.contracts.errors import StateCorrupt
from headrace.services.observe.logs import configure
from headrace.services.runtime.input.ahead import Ahead, BatchFailedError
from headrace.services.runtime.task import trouble
from headrace.services.runtime.task import work as work_of_tasks
from headrace.services.runtime.task.task import Task
from headrace.services.runtime.task.trouble import Trouble
from headrace.services.runtime.task.work import Work
from tests.observe.test_logs import CUSTOMER, lines
from tests.runtime.test_tally import HOP, SPEC
from tests.runtime.working import working


def failed_batch(start: int = 3, stop: int = 9) -> BatchFailedError:
    """A batch on which an operator raised an error that shows what a record says."""
    failed = BatchFailedError(range(start, stop))
    failed.__cause__ = UnicodeEncodeError("utf-8", f"{CUSTOMER}\ud800", 10, 11, "not allowed")
    return failed


def test_the_log_shows_nothing_of_the_record_on_which_a_batch_failed(tmp_path: Path) -> None:
    async def take_care() -> None:
        async with working(SPEC, tmp_path) as work:
            ahead = Ahead()
            await Trouble(work, HOP, 0, ahead, lambda: False).take_care(failed_batch())

    stream = StringIO()
    configure("json", "info", stream)
    asyncio.run(take_care())
    (line,) = (one for one in lines(stream) if one["event"].startswith("a batch failed"))
    assert CUSTOMER not in stream.getvalue()
    assert line["why"] == "UnicodeEncodeError"


def test_a_partition_rests_longer_each_time_until_it_has_come_past_what_failed(
    tmp_path: Path,
) -> None:
    async def take_care() -> None:
        async with working(SPEC, tmp_path) as work:
            of_task = Trouble(work, HOP, 0, Ahead(), lambda: False)
            for start in (3, 20):
                await of_task.take_care(failed_batch(start, start + 9))
                for _ in range(3):
                    await of_task.take_care(failed_batch(start, start + 1))

    stream = StringIO()
    configure("json", "info", stream)
    with patch.object(trouble, "_STAND_BACK_S", (0.001, 0.003)):
        asyncio.run(take_care())
    rests = [one["again_in_s"] for one in lines(stream) if "again_in_s" in one]
    assert rests == [0.001, 0.002, 0.003] * 2


def test_the_log_blames_no_transaction_for_a_partition_that_cannot_be_opened(
    tmp_path: Path,
) -> None:
    async def recover() -> bool:
        async with working(SPEC, tmp_path) as work:
            return await work.recover(Task(work, HOP, 0), LeaderNotAvailableError())

    stream = StringIO()
    configure("json", "info", stream)
    with patch.object(work_of_tasks, "_RETRY_S", 0.0):
        assert asyncio.run(recover())
    (line,) = (one for one in lines(stream) if one.get("source") == "raw/0")
    assert line["event"] == "a partition failed; back to what is committed"


DAMAGE = StateCorrupt("a block has another checksum")


async def discard(work: Work, of_task: Trouble) -> None:
    """Open a task's database, and find that it is damaged."""
    table = work.tables[HOP.name]
    await table.open(0, work.now_ms())
    await table.close(0)
    await of_task.discard(DAMAGE)


def test_a_database_that_has_served_for_long_since_it_was_rebuilt_is_rebuilt_again(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        async with working(SPEC, tmp_path) as work:
            of_task = Trouble(work, HOP, 0, Ahead(), lambda: False)
            for _ in range(3):
                await discard(work, of_task)
                await of_task.learn([])
            with patch.object(trouble, "_SOUND_AFTER_S", 3_600.0), pytest.raises(StateCorrupt):
                # A database that was rebuilt a moment ago is damaged, so its changelog is.
                await discard(work, of_task)

    with patch.object(trouble, "_SOUND_AFTER_S", 0.0):
        asyncio.run(live())


def test_a_database_that_is_damaged_before_it_has_served_is_not_rebuilt_again(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        async with working(SPEC, tmp_path) as work:
            of_task = Trouble(work, HOP, 0, Ahead(), lambda: False)
            await of_task.learn([])
            await discard(work, of_task)
            with pytest.raises(StateCorrupt):
                await discard(work, of_task)

    with patch.object(trouble, "_SOUND_AFTER_S", 0.0):
        asyncio.run(live())
