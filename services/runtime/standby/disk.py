"""The copies of state that an instance finds on its disk when it starts, and how far they are.

The group gives a partition to whoever lacks least of its state. After all instances were stopped at
once, what lies on their disks is all that anybody knows.

To look means to open, and the first to open a database after a kill reads its log, which holds
the interpreter. So this comes before the group is joined, and to open one later takes a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import HeadraceError
from headrace.services.group.member import TaskId
from headrace.services.kafka.identities import Identity
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.task.work import Work
from headrace.services.state.changelog import reached
from headrace.services.state.overlay import Overlay
from headrace.services.state.partition import distrusted_because, is_another
from headrace.services.state.rocks import RocksStore

_WITHIN_S = 10.0
logger = logger_of(__name__)


class Copy(NamedTuple):
    """A task's database, which whoever opens it goes on from."""

    task: TaskId
    position: int
    """In its changelog."""
    changelog_id: str | None

    def is_among(self, changelogs: Identity) -> bool:
        """Whether its partition is there; made anew elsewhere, a topic may have fewer."""
        return self.task.partition < changelogs.partitions


async def lags_on_disk(work: Work) -> dict[TaskId, int]:
    """How many changelog records each copy lacks; nothing where the broker does not say."""
    copies = await asyncio.to_thread(lambda: list(copies_on_disk(work)))
    if not copies:
        return {}
    names = [hop.changelog.name for hop in work.spec.hops()]
    try:
        async with asyncio.timeout(_WITHIN_S):
            topics = await work.identities.now()
            # Of a partition that is gone nobody ever tells the end, and the others would wait.
            copies = [copy for copy in copies if copy.is_among(topics[names[copy.task.hop]])]
            changelogs = [TopicPartition(names[task.hop], task.partition) for task, *_ in copies]
            ends = await work.restorer.ends(changelogs)
    except (KafkaError, TimeoutError) as problem:
        logger.warning("how far the copies on disk are is not known", why=repr(problem))
        return {}
    ids = [topics[name].id for name in names]
    ends_of = {copy.task: ends[at] for copy, at in zip(copies, changelogs, strict=True)}
    lags = lags_of(copies, ids, ends_of)
    logger.info("copies found on the disk", partitions=len(lags), lag=sum(lags.values()))
    return lags


def lags_of(
    copies: Iterable[Copy], ids: Sequence[str | None], ends: Mapping[TaskId, int]
) -> dict[TaskId, int]:
    """How many records each copy lacks of the changelog that there is; of another one it is none.

    The group would give away a task at once to who has it by its lag, and must restore all of it.
    """
    return {
        task: max(0, ends[task] - position)
        for task, position, changelog_id in copies
        if not is_another(changelog_id, ids[task.hop])
    }


def copies_on_disk(work: Work) -> Iterator[Copy]:
    """Yield the copies that are trusted; a database that is too old is thrown away when opened."""
    for number, hop in enumerate(work.spec.hops()):
        folder = work.folder / hop.name
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not path.name.isdecimal():
                continue
            try:
                with closing(RocksStore(path, work.memory)) as store:
                    overlay = Overlay(store, work.spec.pipeline)
                    position, changelog_id = reached(overlay), overlay.changelog_id
                    is_trusted = distrusted_because(overlay, work.now_ms()) is None
            except HeadraceError as problem:
                # The task that opens it says what is to be done.
                logger.warning("a copy on disk cannot be read", folder=str(path), why=str(problem))
                continue
            if position and is_trusted:
                yield Copy(TaskId(number, int(path.name)), position, changelog_id)
