"""A topic that is deleted and made anew while a worker goes on with it ends the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from aiokafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import StateTruncated
from headrace.services.kafka.identities import Identity
from headrace.services.kafka.limits import Limits
from headrace.services.runtime import watch
from headrace.services.runtime.unawaited import report_failure
from headrace.services.runtime.worker import Worker
from headrace.services.settings import Settings
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import MEMORY_BYTES, RocksMemory
from headrace.services.state.stamps import check_stamp, stamp_of
from tests.runtime.test_tally import HOP, SPEC
from tests.runtime.working import working

SOURCE = TopicPartition("raw", 0)
OLD, NEW = 1, 2
"""The numbers of two topics of this name."""


def _metadata(source: int, changelog: int = OLD) -> Any:
    numbers = {SOURCE.topic: source, HOP.changelog.name: changelog}
    topics = [(0, name, 0, number, False, [()]) for name, number in numbers.items()]
    return SimpleNamespace(topics=topics)


def _topics(number: int) -> dict[str, Identity]:
    names = SOURCE.topic, HOP.changelog.name
    return dict.fromkeys(names, Identity(f"{number:032x}", 1))


@asynccontextmanager
async def _watched(
    folder: Path, answers: list[Any], state: str = "running", *, is_counted: bool = True
) -> AsyncIterator[Worker]:
    """Watch a worker whose task has the old topics, until all answers were given."""
    settings = Settings(bootstrap_servers="127.0.0.1:1", state_folder=folder)
    worker = Worker(SPEC, settings, {SOURCE.topic: 1}, Limits({}))
    waiting = list(answers)

    async def survey() -> dict[TopicPartition, Any]:
        raise LeaderNotAvailableError

    async def ask(_request: Any) -> Any:
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def counted() -> bool:
        return is_counted

    within = cast("Any", worker)
    within._thread = SimpleNamespace(survey=survey, is_counted=counted)  # noqa: SLF001 - the consumer's
    within.work.restorer.ask = ask
    worker.work.goes_on_with(HOP, SOURCE.partition, _topics(OLD))
    worker.tasks[SOURCE] = cast("Any", SimpleNamespace(state=state))

    looks = iter(range(len(answers)))

    def look() -> tuple[()]:
        if next(looks) == len(answers) - 1:
            looking.cancel()
        return ()

    await worker.work.restorer.start()
    with patch.object(watch, "_LOOK_EVERY_S", 0.001):
        looking = asyncio.create_task(watch._look(worker, cast("Any", SimpleNamespace(look=look))))  # noqa: SLF001 - runs beside a worker
        looking.add_done_callback(partial(report_failure, worker.fail))
        await asyncio.wait([looking], timeout=10)
        assert looking.done()
    await asyncio.sleep(0)
    try:
        yield worker
    finally:
        await worker.work.restorer.stop()


SOURCE_IS_ANEW = (
    "`raw` was deleted and made anew since this state was written, so its offsets mean other"
    " records now; begin anew with `headrace reset`, which reads all that is there, or bring the"
    " topic back"
)
"""The sentence of a start."""
CHANGELOG_IS_ANEW = (
    f"the changelog `{HOP.changelog.name}` was deleted and made anew while this instance wrote to"
    " it, so it lacks what was written before; bring the topic back, or begin anew with `headrace"
    " reset`"
)


@pytest.mark.parametrize(
    ("last", "sentence"),
    [(_metadata(NEW), SOURCE_IS_ANEW), (_metadata(OLD, NEW), CHANGELOG_IS_ANEW)],
)
def test_a_topic_that_is_made_anew_ends_the_worker_that_has_its_offsets(
    tmp_path: Path, last: Any, sentence: str
) -> None:
    async def live() -> None:
        gone = UnknownTopicOrPartitionError(SOURCE.topic)
        answers = [_metadata(OLD), gone, _metadata(OLD), gone, last]
        async with _watched(tmp_path, answers) as worker:
            with pytest.raises(StateTruncated) as ended:
                await asyncio.wait_for(worker.failed(), 1)
            assert str(ended.value) == sentence
            # Records of the new topic may be under way.
            assert not worker._may_commit()  # noqa: SLF001 - asked when it closes

    asyncio.run(live())


@pytest.mark.parametrize(
    ("state", "answers", "is_counted"),
    [
        ("running", [OLD, OLD], True),
        # Brokers may give no ids.
        ("running", [0, 0], True),
        # A task that is opened again looks for itself, and may go on with another state.
        ("restoring", [NEW, NEW], True),
        # It slept while the pipeline was reset, and will hear that it was counted out.
        ("running", [NEW, NEW], False),
    ],
)
def test_a_worker_goes_on_while_no_running_task_of_ours_has_another_topic(
    tmp_path: Path, state: str, answers: list[int], *, is_counted: bool
) -> None:
    async def live() -> None:
        told = [_metadata(number, number) for number in answers]
        async with _watched(tmp_path, told, state, is_counted=is_counted) as worker:
            assert not worker._failed.done()  # noqa: SLF001 - asked by nobody before it fails
            assert worker._may_commit()  # noqa: SLF001 - asked when it closes

    asyncio.run(live())


def test_an_answer_from_before_a_task_was_opened_again_is_not_counted(tmp_path: Path) -> None:
    async def live() -> None:
        async with working(SPEC, tmp_path) as work:

            async def ask(_request: Any) -> Any:
                work.goes_on_with(HOP, SOURCE.partition, _topics(NEW))
                return _metadata(OLD, NEW)

            cast("Any", work.restorer).ask = ask
            work.goes_on_with(HOP, SOURCE.partition, _topics(OLD))
            await work.made_anew.check([SOURCE])

    asyncio.run(live())


def test_a_state_whose_changelog_lacks_its_beginning_is_refused(tmp_path: Path) -> None:
    state = PartitionState(tmp_path / "0", SPEC.pipeline, RocksMemory(MEMORY_BYTES), now_ms=1)
    try:
        # The first commit has the stamp. It was in a topic that was deleted under a worker.
        state.reach(70, 9_000)
        with pytest.raises(StateTruncated, match="the changelog of `raw` lacks its beginning, as"):
            check_stamp(state, stamp_of(SPEC, HOP))
    finally:
        state.close()
