"""How the partitions of an instance send, and what is ended before they begin.

Exactly once they send in producers, many in one transaction. At least once each has a producer,
and all of them one fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiokafka.errors import CommitFailedError
from aiokafka.structs import TopicPartition

from headrace.contracts.hops import Hop, former_transactional_prefix, transactional_prefix
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.topics import progress_topic
from headrace.services.group.shared_transaction import must_end
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.member_offsets import Member
from headrace.services.kafka.security import client_options
from headrace.services.kafka.takeovers import Takeovers
from headrace.services.kafka.topics import FROM_ANY_HOP, written_topics
from headrace.services.kafka.unfinished import Known
from headrace.services.runtime.machine.folder import client_of
from headrace.services.runtime.output.fenced_producer import Fence, FencedProducer
from headrace.services.runtime.output.producer import Way, tell_ended
from headrace.services.runtime.output.shared_producer import Common, Ours
from headrace.services.runtime.output.shared_producers import SharedProducers
from headrace.services.settings import Settings


class Group(Protocol):
    """The group's word on this instance."""

    def member(self) -> Member | None:
        """Tell as whom the group knows it, as far as it has heard."""
        ...

    async def is_counted(self) -> bool:
        """Whether the group, asked now, counts it as a member."""
        ...

    def sends_until_s(self) -> float:
        """Until when it may send without a transaction, as far as it has heard."""
        ...


class Ways:
    """All of one instance."""

    def __init__(
        self,
        spec: PipelineSpec,
        settings: Settings,
        group: Callable[[], Group],
        limits: Limits,
    ) -> None:
        """It connects when somebody needs it."""
        self._spec = spec
        self._settings = settings
        self._group = group
        self._limits = limits
        self._topics = written_topics(spec, settings)
        # A user who may write under the ids of earlier versions may do so under these.
        self._prefix = f"{transactional_prefix(spec.pipeline, spec.hops()[0])}shared-"
        names = [topic.name for topic in self._topics]
        client, timeout_ms = client_options(settings, "take-over"), settings.transaction_timeout_ms
        self._takeovers = Takeovers(client, names, timeout_ms)
        self._shared = self._make_shared() if settings.guarantee == "exactly-once" else None
        self._fence = Fence(
            client_options(settings, "produce"),
            lambda: self._group().sends_until_s(),
            self.check_counted,
        )

    def way(self, hop: Hop, partition: int, wake: Callable[[], None]) -> Way:
        """How one partition sends; `wake` is called when others wait for it to commit."""
        if self._shared is None:
            return FencedProducer(self._fence, TopicPartition(hop.topic, partition))
        former = self._former_ids(hop, partition)
        ours = Ours(self._known(hop, partition), former, wake, self.check_counted)
        return self._shared.seat(TopicPartition(hop.topic, partition), ours)

    def _make_shared(self) -> SharedProducers:
        settings, pipeline = self._settings, self._spec.pipeline
        folder = settings.state_folder / pipeline
        topics = [topic.name for topic in self._topics]
        common = Common(
            client_options(settings, "produce"),
            pipeline,
            settings.transaction_timeout_ms,
            settings.session_timeout_ms,
            lambda: self._group().member(),
            self._takeovers,
            Known(dict.fromkeys(topics)),
            self._limits,
        )
        hops = [hop.topic for hop in self._spec.hops()]
        return SharedProducers(common, f"{self._prefix}{client_of(folder).hex()}-", hops)

    def _former_ids(self, hop: Hop, partition: int) -> tuple[str, str]:
        """Under which earlier versions wrote what comes of one partition alone."""
        pipeline = self._spec.pipeline
        prefixes = transactional_prefix(pipeline, hop), former_transactional_prefix(pipeline, hop)
        first, second = (f"{prefix}{partition}" for prefix in prefixes)
        return first, second

    def _known(self, hop: Hop, partition: int) -> Known:
        changelog = TopicPartition(hop.changelog.name, partition)
        progress = TopicPartition(progress_topic(self._spec.sink.topic).name, partition)
        return Known(
            self._written(hop, partition),
            [changelog, progress] if hop.end is None else [changelog],
            TopicPartition(hop.topic, partition),
            self._spec.pipeline,
        )

    def _written(self, hop: Hop, partition: int) -> dict[str, list[int] | None]:
        """Where one partition of a hop writes: in its own number, but for what is spread by id."""
        cleaned = self._spec.sink.topic
        ends = [cleaned, progress_topic(cleaned).name] if hop.end is None else []
        written: dict[str, list[int] | None] = {topic.name: [] for topic in self._topics}
        written |= {name: [partition] for name in (hop.changelog.name, *self._beside(), *ends)}
        if hop.end is not None:
            written[hop.end.topic.name] = None
        return written

    def _beside(self) -> list[str]:
        return [topic.name for topic in self._topics if topic.role in FROM_ANY_HOP]

    async def end_producer(self, name: str, hop: Hop, partition: int) -> None:
        """End what the owner before has left open by the producer that it named.

        An instance that was thrown out, and has not heard of it, must not end its successor's
        transaction. A producer of our own ends what it had open when it begins.
        """
        known = self._known(hop, partition)
        if self._shared is not None and not must_end(name, self._shared.names):
            told = await self._shared.told(name)
            tell_ended(await self._takeovers.look(name, told, known))
            return
        await self.check_counted()
        tell_ended(await self._takeovers.end(name, known))

    async def check_counted(self) -> None:
        """Raise where the group, asked now, does not count this instance.

        One that was thrown out, and has not heard of it, must not write behind its successor's
        name: readers would wait for what will never count.
        """
        if not await self._takeovers.once("counted", "", self._is_counted):
            message = "the group does not count this instance"
            raise CommitFailedError(message)

    async def _is_counted(self, _: str) -> bool:
        return await self._group().is_counted()

    async def end_strangers(self, hop: Hop, partition: int) -> None:
        """End what is open where a partition writes, though its state names nobody who has it."""
        known, alone = self._known(hop, partition), self._alone(hop, partition)
        for name in sorted(await self._takeovers.strangers(known, alone, self._prefix)):
            await self.end_producer(name, hop, partition)

    def _alone(self, hop: Hop, partition: int) -> frozenset[TopicPartition]:
        """The places where one partition of a hop writes, and no other."""
        written = self._written(hop, partition)
        shared = set() if len(self._spec.hops()) == 1 else set(self._beside())
        return frozenset(
            TopicPartition(topic, number)
            for topic, numbers in written.items()
            if numbers is not None and topic not in shared
            for number in numbers
        )

    async def end_former(self, hop: Hop, partition: int) -> None:
        """End what earlier versions have left open."""
        for former in self._former_ids(hop, partition):
            tell_ended(await self._takeovers.retire(former, self._known(hop, partition)))

    async def until_it_may_send(self) -> None:
        """Wait until the group has answered, after what was not acknowledged was given up."""
        await self._fence.until_open()

    async def stop(self) -> None:
        """Let go of all that partitions share."""
        self._fence.stop()
        if self._shared is not None:
            await self._shared.stop()
        await self._takeovers.close()
