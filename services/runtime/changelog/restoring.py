"""A task's state, read from its changelog to the end of it."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka.structs import TopicPartition

from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.changelog.restorer import BeginsLaterError, Restorer
from headrace.services.state.partition import PartitionState

logger = logger_of(__name__)


class Restored(NamedTuple):
    """The result of a restore."""

    records: int
    left_open: list[bytes]
    """Keys whose newest record never counted."""


async def restore(
    state: PartitionState, restorer: Restorer, changelog: TopicPartition, *, is_last: bool
) -> Restored:
    """Read a changelog from where the state is to its end.

    Most is read while an earlier owner may still write; the rest, the last, when it is fenced.
    """
    while True:
        restoration = state.restoration()
        start = state.changelog_position
        try:
            await restorer.restore(changelog, start, restoration.take, is_last=is_last)
        except BeginsLaterError as begins:
            state.begin_at(begins.first)
            logger.info(
                "restored from where its changelog begins",
                changelog=f"{changelog.topic}/{changelog.partition}",
                why=str(begins),
            )
        else:
            return Restored(restoration.restored, restoration.left_open())
