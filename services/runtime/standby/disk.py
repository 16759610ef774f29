"""The copies of state that an instance finds on its disk when it starts, and how far they are.

The group gives a partition to whoever lacks least of its state. After all instances were stopped at
once, what lies on their disks is all that anybody knows.

To look means to open, and the first to open a database after a kill reads its log, which holds
the interpreter. So this comes before the group is joined, and to open one later takes a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import HeadraceError
from headrace.services.group.member import TaskId
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.task.work import Work
from headrace.services.state.changelog import reached
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksStore

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
                with closing(RocksStore(path, work.memory)) as store:
                    position = reached(Overlay(store, work.spec.pipeline))
            except HeadraceError as problem:
                # The task that opens it says what is to be done.
                logger.warning("a copy on disk cannot be read", folder=str(path), why=str(problem))
                continue
            if position:
                yield TaskId(number, int(path.name)), position
