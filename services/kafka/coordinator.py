"""A member of the group that stops nothing when the group rebalances (KIP-429).

aiokafka's own coordinator gives everything up before it joins. This one goes on: what it owns it
keeps, fetches and processes while it joins, until it is told what to give up. That is committed
and closed, and only then it joins again, so that the next owner never begins before.

    join        says what it has (`Membership.describe`); everything it owns goes on
    told        new partitions are assigned, paused; revoked ones are closed, then taken away
    once more   at once, if it revoked something or the leader says so, and not by a heartbeat
    thrown out  everything is let go, without a commit: others may have it by now
    replaced    another process has joined by the same name: this one ends

All of this runs in the consumer's thread, but for what a `Membership` does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    NoError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import (
    HeadraceError,
    InstanceReplaced,
    KafkaUnreachable,
    MemberForeign,
)
from headrace.services.group.round import Heard
from headrace.services.group.term import Term
from headrace.services.group.wire import NO_GENERATION
from headrace.services.kafka import seams
from headrace.services.kafka.fenced import now_s
from headrace.services.kafka.heartbeats import (
    FENCED_INSTANCE_ID,
    OF_A_MEMBER,
    NamedHeartbeat,
    check_kept,
    counts,
    is_alive,
)
from headrace.services.kafka.member_offsets import Member

PROTOCOL = "headrace"
"""The name by which the group's members know how they share out partitions."""
OURS = "headrace"
"""The metadata of an offset that a task committed with its state."""
_COMMIT_AGAIN_S = 0.02
_COUNT_AGAIN_S = 0.1
_COUNTED_WITHIN_S = 10.0
_GROUP_ERRORS = (*OF_A_MEMBER, UnknownMemberIdError)


class Membership(Protocol):
    """A worker as a member of the group."""

    async def describe(self, generation: int) -> bytes:
        """Return what the worker says when it joins."""
        ...

    def lead(self, said: Mapping[str, bytes], partitions: Mapping[str, int]) -> dict[str, bytes]:
        """Return the leader's word for each member; called in the consumer's thread."""
        ...

    def hear(self, raw: bytes) -> Heard:
        """Read the leader's word; called in the consumer's thread."""
        ...

    async def told(self, heard: Heard) -> None:
        """Do what was told; returns when everything revoked is closed."""
        ...

    async def thrown_out(self) -> None:
        """Let go of everything; returns when it is closed."""
        ...

    def fail(self, problem: Exception) -> None:
        """End the worker; may be called from any thread."""
        ...


class _Said(NamedTuple):
    """Stands where aiokafka expects an assignor: what a member says, under the protocol's name."""

    said: bytes
    name: str = PROTOCOL

    def metadata(self, _topics: Any) -> bytes:
        """Return the member's words for JoinGroup."""
        return self.said


class GroupConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose partitions come and go one by one."""

    def __init__(
        self, membership: Membership, main_loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        """Act for a membership that lives in the main loop."""
        super().__init__(**options, partition_assignment_strategy=[_Said(b"")])
        self._make_coordinator = partial(
            CooperativeCoordinator, consumer=self, membership=membership, main_loop=main_loop
        )
        seams.ask_apart(self)

    async def start(self) -> None:
        """Connect, with our coordinator."""
        await seams.start_with(self, self._make_coordinator)

    async def stop(self) -> None:
        """Leave the group, whatever a fetch waits for."""
        await seams.stop(self)


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """Joins, hears, and joins again, without a pause for what stays."""

    def __init__(
        self,
        *arguments: Any,
        consumer: GroupConsumer,
        membership: Membership,
        main_loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        """Begin without partitions."""
        self.heartbeat_at_s: float | None = None
        """When the group last answered."""
        self._consumer = consumer
        self._membership = membership
        self._main_loop = main_loop
        self._told_in = NO_GENERATION
        """The last generation in which it was told what to run."""
        self._led_over: dict[str, int] | None = None
        """The topics' partitions that were shared out, if it led."""
        self._is_lost = False
        self._is_replaced = False
        self._is_commit_refused = False
        self._is_joining = False
        """Whether the group may have a new generation whose number has not been read here."""
        super().__init__(*arguments, **options)
        self.term = Term(self._session_timeout_ms / 1000, self._rebalance_timeout_ms / 1000)
        """How long we may send at least once."""

    @property
    def member(self) -> Member | None:
        """Return the member that we are to the group; None if we are none, or have not heard it."""
        if self._is_lost or not self.member_id or self.generation < 0:
            return None
        return Member(self.member_id, self.generation)

    async def is_counted(self) -> bool:
        """Whether the group, asked now, counts us as a member.

        A coordinator that still reads its groups answers every heartbeat as if all were well. So we
        ask with a generation that no group has: one that knows its members refuses it.
        """
        member = self.member
        if member is None:
            return False
        await self.ensure_coordinator_known()
        request = HeartbeatRequest(self.group_id, NO_GENERATION, member.member_id)
        answer = await seams.ask(self._consumer, request, self.coordinator_id)
        return counts(answer.error_code)

    async def _in_main_loop(self, call: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._main_loop))

    async def _on_join_prepare(self, _previous: Any) -> None:
        """Give up nothing, unless it is lost already."""
        if self._is_lost:
            self._is_lost = False
            self._told_in = NO_GENERATION
            await self._in_main_loop(self._membership.thrown_out())
            self._drop(self._subscription.assigned_partitions())

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        said = await self._in_main_loop(self._membership.describe(self._told_in))
        self._assignors = [_Said(said)]
        self._is_joining = True
        beating = asyncio.create_task(self._beat_while_joining())
        try:
            joined: bool = await super()._do_rejoin_group(subscription)
        except InconsistentGroupProtocolError:
            message = (
                f"the members of group `{self.group_id}` share out partitions in another way:"
                " another program, or a headrace from before cooperative rebalancing, is in the"
                " group; stop it, and start this one again"
            )
            self._membership.fail(MemberForeign(message))
            raise
        except KafkaError as problem:
            self._membership.fail(problem)
            raise
        finally:
            self._is_joining = False
            beating.cancel()
        return joined

    async def _beat_while_joining(self) -> None:
        """Hear that we are counted: a JoinGroup is answered once the slowest member has joined."""
        while self._is_joining:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            member, sent_at_s = self.member, now_s()
            if member is None:
                continue
            request = HeartbeatRequest(self.group_id, member.generation, member.member_id)
            with suppress(KafkaError):
                answer = await seams.ask(self._consumer, request, self.coordinator_id)
                if self.member_id == member.member_id and is_alive(answer.error_code):
                    self._hear(sent_at_s, is_rebalancing=True)

    async def _perform_assignment(self, response: Any) -> dict[str, bytes]:
        """Lead: make everybody's share from what everybody says."""
        said = {member[0]: bytes(member[-1]) for member in response.members}
        try:
            self._led_over = await self._count_partitions()
            return self._membership.lead(said, self._led_over)
        except HeadraceError as problem:
            self._membership.fail(problem)
            raise

    async def _count_partitions(self) -> dict[str, int]:
        """Of each topic. One that is not known yet is no topic without partitions."""
        give_up_at_s = time.monotonic() + _COUNTED_WITHIN_S
        while True:
            counted = {
                topic: len(self._cluster.partitions_for_topic(topic) or ())
                for topic in self._subscription.topics
            }
            unknown = [topic for topic, count in counted.items() if not count]
            if not unknown:
                return counted
            if time.monotonic() >= give_up_at_s:
                message = (
                    f"the brokers do not say how many partitions `{unknown[0]}` has; check that"
                    " they run, and that the topic is still there"
                )
                raise KafkaUnreachable(message)
            await self._client.force_metadata_update()
            await asyncio.sleep(_COUNT_AGAIN_S)

    async def _on_join_complete(
        self, generation: int, _member_id: str, _protocol: str, raw: bytes
    ) -> None:
        self._is_joining = False
        # Tasks may take long to commit before they go, and the group must hear of us meanwhile.
        self._start_heartbeat_task()
        self.heartbeat_at_s = time.monotonic()
        try:
            heard = self._membership.hear(bytes(raw))
        except HeadraceError as problem:
            self._membership.fail(problem)
            raise
        # A member that sees that a topic has more partitions asks for a rebalance, leader or not:
        # the leader of a static group may have been restarted, and was not told that it leads.
        self._group_subscription = self._subscription.topics
        self._metadata_snapshot = self._get_metadata_snapshot()
        if self._subscription.subscription.assignment is None:
            self._subscription.assign_from_subscribed([])
        owned = self._subscription.assigned_partitions()
        told = frozenset(TopicPartition(*partition) for partition in heard.partitions)
        self._told_in = generation
        seams.add_partitions(self._consumer, told - owned)
        await self._in_main_loop(self._membership.told(heard))
        self._drop(owned - told)
        counted, self._led_over = self._led_over, None
        has_grown = counted is not None and counted != self._metadata_snapshot
        if owned - told or heard.joins_at_once or has_grown:
            self.request_rejoin()

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            seams.drop_partitions(self._consumer, partitions)

    def request_rejoin(self) -> None:
        """Join again soon; not because a commit was refused, which its heartbeat will say."""
        if not (self._is_commit_refused or self._is_replaced):
            super().request_rejoin()

    def reset_generation(self) -> None:
        """The group does not know this member, or not any more."""
        if self._is_commit_refused or self._is_replaced:
            return
        super().reset_generation()
        self.term.lost()
        if not self._closing.done():
            self._is_lost = True
            # It may be trying to join, and would let go of nothing before it tries again.
            self._performed_join_prepare = False

    async def _do_commit_offsets(self, assignment: Any, offsets: Any) -> None:
        """Commit; again, if only the generation has changed, which says nothing about owners."""
        give_up_at = time.monotonic() + self._session_timeout_ms / 1000
        member = self.member
        if member is None:
            # A group without members takes an offset from anybody who is none.
            raise UnknownMemberIdError(self.group_id)
        while True:
            known_as = self.generation, self.member_id
            try:
                await super()._do_commit_offsets(assignment, offsets)
            except _GROUP_ERRORS as refused:
                self._is_commit_refused = False
                may_change = isinstance(refused, RebalanceInProgressError) or (
                    self._is_joining and isinstance(refused, IllegalGenerationError)
                )
                is_known = known_as == (self.generation, self.member_id) and not may_change
                if is_known and await self._hears_it_is_replaced():
                    raise
                if is_known:
                    self.reset_generation()
                    raise
                # As another member we may have lost the partition meanwhile.
                is_other = self._is_lost or self.member_id != member.member_id
                if is_other or time.monotonic() > give_up_at:
                    raise
            else:
                return
            finally:
                self._is_commit_refused = False
            await asyncio.sleep(_COMMIT_AGAIN_S)

    async def _send_req(self, request: Any) -> Any:
        known_as, sent_at_s = self.member_id, now_s()
        if isinstance(request, LeaveGroupRequest):
            self.term.lost()
        if self._group_instance_id is not None and isinstance(request, HeartbeatRequest):
            request = self._heartbeat()
        answer = await super()._send_req(request)
        self._look_for_another(known_as, answer)
        check_kept(request, answer)
        if known_as == self.member_id and not self._is_replaced:
            self._hear_that_it_counts(request, answer, sent_at_s)
        if self._is_replaced and isinstance(request, NamedHeartbeat):
            # The name is another's by now, so we say nothing more in it until the consumer ends.
            await asyncio.Future()
        if isinstance(request, OffsetFetchRequest) and answer.error_code:
            # aiokafka reads partitions alone, and would find that the group has committed nothing.
            self.coordinator_dead()
            raise for_code(answer.error_code)(self.group_id)
        # aiokafka forgets the generation at once when a commit is refused, before anybody else
        # runs, though the commit may have carried an older one.
        self._is_commit_refused = isinstance(request, OffsetCommitRequest)
        return answer

    def _hear_that_it_counts(self, request: Any, answer: Any, sent_at_s: float) -> None:
        """Count how long we may send, by answers to what the group takes from members alone."""
        if isinstance(request, HeartbeatRequest | NamedHeartbeat) and is_alive(answer.error_code):
            self._hear(sent_at_s, is_rebalancing=answer.error_code != NoError.errno)
        elif isinstance(request, SyncGroupRequest) and answer.error_code == NoError.errno:
            self._hear(sent_at_s, is_rebalancing=False)

    def _hear(self, sent_at_s: float, *, is_rebalancing: bool) -> None:
        self.heartbeat_at_s = time.monotonic()
        self.term.heard(sent_at_s, is_rebalancing=is_rebalancing)

    def _heartbeat(self) -> NamedHeartbeat:
        name = self._group_instance_id
        return NamedHeartbeat(self.group_id, self.generation, self.member_id, name)

    async def _hears_it_is_replaced(self) -> bool:
        """Ask, since a commit does not say our name, and hears no reason."""
        if self._group_instance_id is not None and not self._is_replaced:
            known_as = self.member_id
            self._look_for_another(known_as, await super()._send_req(self._heartbeat()))
        return self._is_replaced

    def _look_for_another(self, known_as: str, answer: Any) -> None:
        """End if our name is another's; to join again would throw that one out, and it us.

        A member without an id is not replaced: it is about to join.
        """
        if known_as and getattr(answer, "error_code", None) == FENCED_INSTANCE_ID:
            self._is_replaced = True
            self.term.lost()
            message = (
                f"another process has joined group `{self.group_id}` under the name"
                f" `{self._group_instance_id}`, and this one gives way to it; run one of the two,"
                " or give each a HEADRACE_INSTANCE_ID of its own"
            )
            self._membership.fail(InstanceReplaced(message))
