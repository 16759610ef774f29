"""A producer's transactions, guided where aiokafka would go another way.

The private names are those of `seams.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.client import CoordinationType
from aiokafka.conn import CloseReason
from aiokafka.errors import IllegalOperation, KafkaError, OutOfOrderSequenceNumber, ProducerFenced
from aiokafka.producer.transaction_manager import PidAndEpoch
from aiokafka.structs import OffsetAndMetadata, TopicPartition

_TELL_AGAIN_S = 0.05


async def start_as(producer: Any, identity: tuple[int, int]) -> None:
    """Start a producer whose client is connected, under a number and an epoch that it was given."""
    producer._txn_manager.set_pid_and_epoch(*identity)
    await producer._sender.start()


def go_on_as(producer: Any, identity: tuple[int, int]) -> None:
    """Give a producer that has no transaction open a new epoch."""
    transaction = producer._txn_manager
    transaction._pid_and_epoch = PidAndEpoch(*identity)
    transaction._sequence_numbers.clear()


def begin(producer: Any) -> None:
    """Begin a transaction at once, of a producer that was started."""
    producer._txn_manager.begin_transaction()


class ConnectionLostError(OutOfOrderSequenceNumber):  # type: ignore[misc]
    """Of a transaction within which a connection was lost nothing more is sent.

    Of aiokafka's errors its sender takes three for what they are; this is one of them.
    """


def on_lost_connection(producer: Any, hear: Callable[[], None]) -> None:
    """Hear of each connection that ends while something may be under way on it.

    The broker may have died before it ended the transaction before everywhere, and what is sent
    again now would stand behind that in the same epoch: both would end alike. So an open
    transaction ends here, and nothing of it is sent any more.
    """
    client, sender, transaction = producer.client, producer._sender, producer._txn_manager
    closed, wait_for_pid = client._on_connection_closed, sender._maybe_wait_for_pid
    torn: list[Any] = []

    def heard(connection: Any, reason: Any) -> None:
        if reason is not CloseReason.IDLE_DROP:
            if transaction.is_in_transaction():
                torn.append(reason)
            hear()
        closed(connection, reason)

    async def wait_or_end() -> None:
        """The sender calls this before each request."""
        if torn:
            message = "a connection was lost within a transaction"
            raise ConnectionLostError(message)
        await wait_for_pid()

    client._on_connection_closed = heard
    sender._maybe_wait_for_pid = wait_or_end


def take_failures_as_heard(producer: Any) -> None:
    """Have asyncio say nothing of a failed transaction that is not asked for its end.

    The call that fails raises, and no other follows. So nobody asks for the end of the whole, and
    asyncio would log it as an error, some time later.
    """
    transaction = producer._txn_manager

    def heard(fail: Callable[[BaseException], None]) -> Callable[[BaseException], None]:
        def fail_and_hear(problem: BaseException) -> None:
            fail(problem)
            transaction._transaction_waiter.exception()

        return fail_and_hear

    transaction.error_transaction = heard(transaction.error_transaction)
    transaction.fatal_error = heard(transaction.fatal_error)


OUT_OF_STATE = (IllegalOperation, AssertionError)
"""How aiokafka's calls end behind the one that failed."""


def failure_of_transaction(producer: Any) -> BaseException | None:
    """Return what the open transaction failed of; later calls only say that there is none."""
    ends = (producer._txn_manager._transaction_waiter, producer._sender.sender_task)
    for end in ends:
        if end is not None and end.done() and not end.cancelled():
            failure: BaseException | None = end.exception()
            if failure is not None:
                return failure
    return None


def announce(producer: Any, partition: TopicPartition) -> None:
    """Make a partition part of the open transaction, in one request with those sent to next.

    Of a transaction that has failed the next `send_batch` will say so.
    """
    if producer._txn_manager.is_in_transaction():
        producer._txn_manager.maybe_add_partition_to_txn(partition)


def announce_group(producer: Any, group: str) -> None:
    """Make a group part of every transaction that has partitions, before its offsets are told.

    By itself the producer asks for the group once it has offsets, and they wait for the answer.
    """
    transaction = producer._txn_manager
    to_add = transaction.consumer_group_to_add

    def to_add_early() -> str | None:
        is_added = transaction._txn_consumer_group is not None
        is_begun = transaction.is_in_transaction() and transaction.txn_partitions
        return group if is_begun and not is_added else to_add()

    transaction.consumer_group_to_add = to_add_early


def tell_offsets_by(
    producer: Any, tell: Callable[[int, dict[TopicPartition, OffsetAndMetadata]], Awaitable[None]]
) -> None:
    """Have a transaction's offsets told in another way than aiokafka's, which names no member.

    A refusal ends the transaction; what may pass is tried again.
    """
    sender, transaction = producer._sender, producer._txn_manager

    async def commit(offsets: dict[TopicPartition, OffsetAndMetadata], group: str) -> None:
        try:
            await tell(await sender._find_coordinator(CoordinationType.GROUP, group), offsets)
        except ProducerFenced:
            raise
        except KafkaError as problem:
            if not problem.retriable:
                transaction.error_transaction(problem)
                return
            sender._coordinator_dead(CoordinationType.GROUP)
            await asyncio.sleep(_TELL_AGAIN_S)
        else:
            for partition, told in list(offsets.items()):
                transaction.offset_committed(partition, told.offset, group)

    sender._do_txn_offset_commit = commit
