"""The copies of state that an instance finds on its disk when it starts, and how far they are.

The group gives a partition to whoever lacks least of its state. After all instances were stopped at
once, what lies on their disks is all that anybody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from contracts.errors import HeadraceError
from services.group.member import TaskId
from services.observe.logs import logger as logger_of
from services.runtime.work import Work
from services.state.changelog import CHANGELOG
from services.state.overlay import Overlay
from services.state.rocks import reading

_WITHIN_S = 10.0
logger = logger_of(__name__)


async def lags_on_disk(work: Work) -> dict[TaskId, int]:
    """How many changelog records each copy lacks; nothing where the broker does not say."""
    positions = dict(await asyncio.to_thread(lambda: list(_positions(work))))
    if not positions:
        return {}
    hops = work.spec.hops()
    changelogs = {
        task: TopicPartition(hops[task.hop].changelog.name, task.partition) for task in positions
    }
    try:
        async with asyncio.timeout(_WITHIN_S):
            ends = await work.restorer.ends(list(changelogs.values()))
    except (KafkaError, TimeoutError) as problem:
        logger.warning("how far the copies on disk are is not known", why=repr(problem))
        return {}
    lags = {task: max(0, ends[changelogs[task]] - at) for task, at in positions.items()}
    logger.info("copies found on the disk", partitions=len(lags), lag=sum(lags.values()))
    return lags


def _positions(work: Work) -> Iterator[tuple[TaskId, int]]:
    for number, hop in enumerate(work.spec.hops()):
        folder = work.folder / hop.name
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not path.name.isdecimal():
                continue
            try:
                with reading(path, work.memory) as store:
                    position = Overlay(store, work.spec.pipeline).position(CHANGELOG)
            except HeadraceError as problem:
                # Whoever opens it to run on it says what is to be done.
                logger.warning("a copy on disk cannot be read", folder=str(path), why=str(problem))
                continue
            if position is not None:
                yield TaskId(number, int(path.name)), position
