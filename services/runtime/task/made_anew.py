"""Topics that are deleted and made anew while tasks read and write them.

A fetch does not tell of it, if the new topic has an offset as high by then: aiokafka asks for names
alone. So brokers are asked for the ids again and again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import StateTruncated
from headrace.contracts.hops import Hop
from headrace.services.kafka.identities import DescribeTopics, Identity, identities_in
from headrace.services.runtime.changelog.restorer import Restorer
from headrace.services.state.stamps import check_changelog, check_source


class _Topics(NamedTuple):
    """The topics that a task reads and writes under an offset that it keeps."""

    hop: Hop
    source_id: str | None
    changelog_id: str | None

    @property
    def names(self) -> tuple[str, str]:
        return self.hop.topic, self.hop.changelog.name

    def check(self, now: Mapping[str, Identity]) -> None:
        """Refuse others of these names."""
        source, changelog = self.names
        check_source(source, self.source_id, now[source].id)
        check_changelog(changelog, self.changelog_id, now[changelog].id)


class MadeAnew:
    """Knows the topics of all tasks of a worker."""

    def __init__(self, restorer: Restorer, is_counted: Callable[[], Awaitable[bool]]) -> None:
        """The restorer asks brokers; `is_counted` asks the group whether it counts this worker."""
        self._restorer = restorer
        self._is_counted = is_counted
        self._topics: dict[TopicPartition, _Topics] = {}
        """The topics of each task, as they were when it was opened last; by source."""

    def opened(self, hop: Hop, partition: int, topics: Mapping[str, Identity]) -> None:
        """Hear of which topics a task goes on, once its state was found to know them."""
        ids = topics[hop.topic].id, topics[hop.changelog.name].id
        self._topics[TopicPartition(hop.topic, partition)] = _Topics(hop, *ids)

    async def check(self, sources: Collection[TopicPartition]) -> None:
        """Refuse other topics of these names.

        An instance that was counted out has only slept through a reset.
        """
        known = {source: self._topics[source] for source in sources}
        names = {name for each in known.values() for name in each.names}
        if not names:
            return
        now = identities_in(await self._restorer.ask(DescribeTopics(sorted(names))))
        for source, topics in known.items():
            try:
                topics.check(now)
            except StateTruncated:
                # A task that was opened again meanwhile has looked for itself.
                if self._topics[source] is topics and await self._is_counted():
                    raise
