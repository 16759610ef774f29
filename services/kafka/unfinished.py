"""A transactional id is taken over, and what its earlier owner left open is ended as it was.

A broker that comes back from an outage may forget partitions of a transaction (seen with Apache
Kafka 4.3.1: its log says "these partitions are likely deleted already and hence can be skipped").
The coordinator calls the transaction committed, or aborted, and some of its partitions, or all, are
never told: the records stand open there, and the next transaction of the same producer takes them
along. So whoever takes an id over looks for such records before it writes, and ends them.

How they are ended is what their own transaction came to, never a rule:

1. The coordinator's word (`verdict` in `services/group/shared_transaction.py`). A transaction
   whose end it did not hear is aborted under an epoch that nobody has, one behind its own.
2. The markers in partitions to which every commit of ours writes: changelog and progress.
3. Where these stand open as well, the group's offset: it is part of the same transaction, and the
   changelog's open part says which offset that was.
4. A transaction without a part in its changelog never came to be committed.

All evidence is still there if this is cut short and done again. Where a partition has no leader,
nothing is decided, and all is asked once more.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    KafkaError,
    LeaderNotAvailableError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import KafkaRefused
from headrace.services.group.shared_transaction import Word, is_behind, verdict
from headrace.services.kafka.markers import last_marker, last_value, leader_of
from headrace.services.kafka.patience import PAUSE_S, patient
from headrace.services.kafka.requests import (
    DescribeTransaction,
    EndInPartition,
    Identity,
    NextEpoch,
)
from headrace.services.kafka.writers import Open, Writers
from headrace.services.state.changelog import POSITION, offset_in

_ABORTED = "CompleteAbort"
_GIVEN = "Empty"
"""A producer has the id, and no transaction was begun."""
_ONGOING = "Ongoing"
_ENDING = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
_OVER = {_ABORTED, _GIVEN}
"""In these states no producer can end, or go on with, a transaction of an earlier epoch."""
_NO_SUCH_ID = 105
_RETIRED_MS = 1
"""The timeout of an id that is in use no more: it says so to whoever comes next."""


class Known(NamedTuple):
    """Places and offsets that tell of a producer's transactions, beside their id."""

    written: Mapping[str, Sequence[int] | None]
    """The topics where they may have written, and in which partitions; None is all of them."""
    witnesses: Sequence[TopicPartition] = ()
    """Where every commit has written; the changelog first."""
    source: TopicPartition | None = None
    """The partition whose offset is part of every commit."""
    group: str = ""


class Ended(NamedTuple):
    """A part of a transaction that stood open, and how it was ended."""

    place: TopicPartition
    commits: bool
    because: str


class Told(NamedTuple):
    """The last transaction of an id, as its coordinator tells it."""

    state: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int


class _EndedMeanwhileError(TransactionCoordinatorFenced):  # type: ignore[misc]  # aiokafka has no types
    """A later coordinator has ended a part since we looked; look again."""

    retriable = True


class Takeover:
    """One id, on its way to a new producer."""

    def __init__(
        self,
        client: Any,
        transactional_id: str,
        timeout_ms: int,
        known: Known,
        writers: Writers | None = None,
    ) -> None:
        """Over a client that was bootstrapped; `writers` are asked for others, too."""
        self._client = client
        self._writers = writers or Writers(client.send)
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._known = known
        self.ended: list[Ended] = []

    @patient
    async def take(self, last: Identity | None = None) -> Identity:
        """Fence all earlier producers of this id, and end what they left open.

        A producer that goes on from what it knows says which it was last, and ProducerFenced tells
        that another has taken over since.
        """
        # Asked for one by one, each topic would cost a round trip while nobody owns the partition.
        await self._client.set_topics([*self._known.written])
        before = await self.told()
        while True:
            if before is not None:
                if last is not None and _is_anothers(before, last):
                    raise ProducerFenced
                if before.state in _OVER:
                    await self._end(before)
            identity = await self._ask_for_identity(last)
            if identity is not None:
                break
            before = await self.told()
        if before is not None:
            await self._end(_given(identity, before))
        return identity

    @patient
    async def give(self) -> tuple[Identity, list[Told]]:
        """Fence all earlier producers of this id, and end what they left open by their word.

        For an id under which many partitions wrote. A place without a leader is passed over, and
        what is in doubt is left: for both the partitions are looked at as they come, with what is
        told here. If somebody else takes the id meanwhile, its word has changed, so all is asked
        again.
        """
        await self._client.set_topics([*self._known.written])
        identity, told = None, []
        while identity is None:
            before = await self.told()
            told = [before] if before is not None and before.state in _OVER else []
            for one in told:
                await self._end(one, by_word=True)
            try:
                identity = await self._ask_for_identity(before and Identity(*before[2:]))
            except ProducerFenced:
                continue
        if before is not None:
            told.append(_given(identity, before))
            await self._end(told[-1], by_word=True)
        return identity, told

    @patient
    async def end(self, told: Sequence[Told]) -> None:
        """End what stands open, and is over by what was told."""
        for one in told:
            await self._end(one)

    @patient
    async def is_over(self, epoch: int) -> bool:
        """Whether a transaction of this epoch is over by the word of its coordinator."""
        told = await self.told()
        return told is None or told.state != _ONGOING or told.producer_epoch > epoch

    @patient
    async def is_given_to(self, identity: Identity) -> bool:
        """Whether nobody has used the id since it was given to this producer."""
        told = await self.told()
        return told is not None and told.state == _GIVEN and told[2:] == identity

    @patient
    async def until_over(self) -> None:
        """Wait until readers see the end of a transaction that was told to end."""
        await self.told()

    @patient
    async def retire(self) -> None:
        """Do the same once for an id that no producer of ours will have any more."""
        try:
            told = await self.told()
        except TransactionalIdAuthorizationFailed:
            return  # An instance that may not use it has not used it.
        if told is not None and (told.state, told.timeout_ms) != (_GIVEN, _RETIRED_MS):
            self._timeout_ms = _RETIRED_MS
            await self.take()

    async def _coordinator(self) -> int:
        node: int = await self._client.coordinator_lookup(
            CoordinationType.TRANSACTION, self._transactional_id
        )
        return node

    async def told(self) -> Told | None:
        """Return the last transaction, once it is not just being ended; None if the id is new."""
        while True:
            request = DescribeTransaction(self._transactional_id)
            answer = await self._client.send(await self._coordinator(), request)
            ((code, _, state, timeout_ms, _, producer_id, epoch, *_),) = answer.transaction_states
            if code == _NO_SUCH_ID:
                return None
            if code:
                raise for_code(code)(self._transactional_id)
            if state not in _ENDING:
                return Told(state, timeout_ms, producer_id, epoch)
            await asyncio.sleep(PAUSE_S)

    async def _ask_for_identity(self, last: Identity | None) -> Identity | None:
        """A new epoch; None where a transaction was open, which is aborted first."""
        request = NextEpoch(self._transactional_id, self._timeout_ms, last)
        answer = await self._client.send(await self._coordinator(), request)
        error = for_code(answer.error_code)
        if error is ConcurrentTransactions:
            return None
        if error is InvalidProducerEpoch:
            raise ProducerFenced
        if answer.error_code:
            raise error(self._transactional_id)
        return Identity(answer.producer_id, answer.producer_epoch)

    async def _end(self, told: Told, *, by_word: bool = False) -> None:
        """End what stands open, and is over by its coordinator's account; or by its word alone."""
        found = await self.open(skips=by_word)
        found = [one for one in found if one.writer.producer_id == told.producer_id]
        word = Word(told.producer_epoch, told.state == _GIVEN, told.state == _ABORTED)
        for epoch in sorted({one.writer.producer_epoch for one in found}):
            commits = verdict(word, epoch)
            if is_behind(word, epoch) and not (by_word and commits is None):
                parts = [one for one in found if one.writer.producer_epoch == epoch]
                because = f"its coordinator {'committed' if commits else 'aborted'} it"
                if commits is None:
                    commits, because = await self._verdict(told, epoch, parts)
                for part in parts:
                    await self._end_in(part, commits=commits)
                    self.ended.append(Ended(part.place, commits, because))

    async def _verdict(self, told: Told, epoch: int, parts: list[Open]) -> tuple[bool, str]:
        opened = {one.place: one for one in parts}
        for place in self._known.witnesses:
            if place not in opened:
                marker = await last_marker(self._client, place, told.producer_id)
                if marker is not None and marker.producer_epoch >= epoch:
                    return marker.commits, f"so it ended in {place.topic}/{place.partition}"
        if self._known.witnesses and (part := opened.get(self._known.witnesses[0])):
            return await self._is_in_group(part), "the group's offset says so"
        return False, "it has no part in its changelog"

    async def _is_in_group(self, changelog: Open) -> bool:
        """Whether the group has reached the offset that this part of a changelog speaks of."""
        reached = await last_value(
            self._client,
            changelog.place,
            changelog.writer.producer_id,
            POSITION,
            changelog.first_offset,
        )
        source = self._known.source
        if reached is None or source is None:
            return False
        asked = OffsetFetchRequest(self._known.group, [(source.topic, [source.partition])])
        node = await self._client.coordinator_lookup(CoordinationType.GROUP, self._known.group)
        committed = committed_in(await self._client.send(node, asked), self._known.group)
        return committed >= offset_in(reached)

    async def open(self, *, skips: bool = False) -> list[Open]:
        """Return the transactions that stand open where it may have written.

        `skips` passes over places without a leader.
        """
        found = []
        for leader, places in self._by_leader(skips=skips).items():
            try:
                found += await self._writers.open_in(leader, places)
            except KafkaError as problem:
                if problem.invalid_metadata:
                    self._client.force_metadata_update()
                raise
        return found

    def _by_leader(self, *, skips: bool) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, numbers in self._known.written.items():
            for number in self._partitions(topic) if numbers is None else numbers:
                place = TopicPartition(topic, number)
                try:
                    found[leader_of(self._client, place)].append(place)
                except LeaderNotAvailableError:
                    self._client.force_metadata_update()
                    if not skips:
                        raise
        return found

    def _partitions(self, topic: str) -> Iterable[int]:
        numbers: Collection[int] | None = self._client.cluster.partitions_for_topic(topic)
        if not numbers:
            self._client.force_metadata_update()
            raise LeaderNotAvailableError(topic)
        return numbers

    async def _end_in(self, part: Open, *, commits: bool) -> None:
        request = EndInPartition(part.place, part.writer, commits=commits)
        answer = await self._client.send(part.leader, request)
        ((_, ((_, ((_, code, _),), _),), _),) = answer.markers
        error = for_code(code)
        if error is ClusterAuthorizationFailedError:
            raise KafkaRefused(_refusal(part, commits=commits))
        if error is TransactionCoordinatorFenced:
            raise _EndedMeanwhileError(str(part.place))
        # A later producer of the id has ended it, and writes there already.
        if code and error is not InvalidProducerEpoch:
            raise error(str(part.place))


def committed_in(answer: Any, group: str) -> int:
    """Return the offset that a group has committed, of the one partition that was asked for."""
    # A coordinator that still loads what groups have committed names no partition at all.
    if answer.error_code:
        raise for_code(answer.error_code)(group)
    ((_, ((_, committed, _, code),)),) = answer.topics
    if code:
        raise for_code(code)(group)
    return int(committed)


def _refusal(part: Open, *, commits: bool) -> str:
    topic, partition = part.place
    said = (
        f"an outage left a transaction open in {topic}/{partition} that nobody will end, and the"
        " brokers do not let us (that takes ClusterAction)"
    )
    if commits:
        return f"{said}: it was committed elsewhere; grant that right for one start"
    return (
        f"{said}: have it ended with `kafka-transactions.sh abort --topic {topic} --partition"
        f" {partition} --start-offset {part.first_offset}`, and start again"
    )


def _is_anothers(told: Told, last: Identity) -> bool:
    """Whether somebody else has a transaction open; a broker would abort it, and then refuse."""
    return told.state == _ONGOING and (told.producer_id, told.producer_epoch) != last


def _given(identity: Identity, before: Told) -> Told:
    """The id as it was just given away; where its epochs were used up, of its old number."""
    if identity.producer_id == before.producer_id:
        return Told(_GIVEN, 0, *identity)
    return Told(_GIVEN, 0, before.producer_id, before.producer_epoch + 1)
