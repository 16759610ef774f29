"""Every private name of Faust and aiokafka that we lean on, and nothing else.

The versions are pinned, and `tests/runtime/test_seams.py` fails loudly when an upgrade moves one of
these. Other modules use what is public, and take the rest from here alone. `fetched.py` reads what
a fetch brings, `filling.py` writes what a producer sends, `transactions.py` guides a producer's
transactions, and `fenced.py` keeps a producer from sending.

We use nothing private of Python. The test also covers what Python does beyond its documentation: a
TLS connection that nobody has closed yet can be aborted after the other end hung up, and a function
can be made of another one's code, with other globals.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, KeysView
from types import FunctionType
from typing import Any

import cramjam  # noqa: F401 - aiokafka reads snappy, lz4 and zstd with it, where it is there
from aiokafka import AIOKafkaConsumer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import (
    LeaderNotAvailableError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

FAUST = "0.15.3"
AIOKAFKA = "0.14.0"

PRIVATE_NAMES = {
    "aiokafka.client.AIOKafkaClient": ("_conns", "_get_conn", "_on_connection_closed"),
    "aiokafka.cluster.ClusterMetadata": ("_partitions",),
    "aiokafka.conn.AIOKafkaConnection": ("_protocol", "_writer", "close"),
    "aiokafka.consumer.AIOKafkaConsumer": (
        "_client",
        "_coordinator",
        "_fetcher",
        "_subscription",
        "start",
        "stop",
    ),
    "aiokafka.consumer.fetcher.Fetcher": (
        "_fetch_max_bytes",
        "_fetch_max_wait_ms",
        "_fetch_min_bytes",
        "_fetch_task",
        "_max_partition_fetch_bytes",
        "_notify",
        "_pending_tasks",
        "_records",
        "_wait_consume_future",
    ),
    "aiokafka.consumer.fetcher.PartitionRecords": (
        "_aborted_producers",
        "_check_crcs",
        "_consume_aborted_up_to",
        "_contains_abort_marker",
        "_isolation_level",
        "_records",
        "_records_iterator",
        "_tp",
        "_unpack_records",
    ),
    "aiokafka.consumer.group_coordinator.GroupCoordinator": (
        "_assignors",
        "_client",
        "_closing",
        "_cluster",
        "_do_commit_offsets",
        "_do_rejoin_group",
        "_get_metadata_snapshot",
        "_group_instance_id",
        "_group_subscription",
        "_heartbeat_interval_ms",
        "_metadata_snapshot",
        "_on_join_complete",
        "_on_join_prepare",
        "_perform_assignment",
        "_performed_join_prepare",
        "_rebalance_timeout_ms",
        "_send_req",
        "_session_timeout_ms",
        "_start_heartbeat_task",
        "_subscription",
        "fetch_committed_offsets",
        "request_rejoin",
        "reset_generation",
    ),
    "aiokafka.consumer.subscription_state.Assignment": ("_topic_partitions", "_tp_state"),
    "aiokafka.errors.KafkaError": ("retriable",),
    "aiokafka.producer.AIOKafkaProducer": ("_message_accumulator", "_sender", "_txn_manager"),
    "aiokafka.producer.message_accumulator.BatchBuilder": (
        "_builder",
        "_relative_offset",
        "_set_producer_state",
    ),
    "aiokafka.producer.message_accumulator.MessageAccumulator": (
        "_batches",
        "_pending_batches",
        "fail_all",
    ),
    "aiokafka.producer.message_accumulator.MessageBatch": ("_drain_waiter",),
    "aiokafka.producer.sender.Sender": (
        "_coordinator_dead",
        "_do_txn_offset_commit",
        "_find_coordinator",
        "_maybe_wait_for_pid",
    ),
    "aiokafka.producer.transaction_manager.TransactionManager": (
        "_pid_and_epoch",
        "_sequence_numbers",
        "_transaction_waiter",
        "_txn_consumer_group",
        "consumer_group_to_add",
        "error_transaction",
        "fatal_error",
    ),
    "aiokafka.protocol.api.Request": ("prepare",),
    "aiokafka.protocol.api.RequestStruct": ("FLEXIBLE_VERSION",),
    "aiokafka.protocol.struct.Struct": ("SCHEMA",),
    "aiokafka.record.default_records._DefaultRecordBatchPy": ("_buffer",),
    "faust.App": (
        "BootStrategy",
        "_create_directories",
        "_fetcher",
        "_new_transport",
        "_producer_flush",
        "_stop_consumer",
    ),
    "faust.Table": ("_new_store_by_url",),
    "faust.Topic": ("_compile_decode",),
    "faust.app.base.BootStrategy": ("enable_kafka_producer", "enable_web"),
    "faust.stores.base.Store": ("persisted_offset",),
    "faust.tables.manager.TableManager": (
        "_tables_finalized",
        "_tables_registered",
        "_update_channels",
        "on_partitions_revoked",
        "on_start",
    ),
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread": (
        "__post_init__",
        "_consumer",
        "_create_worker_consumer",
        "_ensure_consumer",
        "_fetch_records",
    ),
    "faust.transport.drivers.aiokafka.Consumer": (
        "_drain_messages",
        "_new_consumer_thread",
        "_thread",
        "ack",
        "commit",
    ),
    "faust.transport.drivers.aiokafka.Transport": ("Consumer",),
    "mode.services.Service": ("mundane_level",),
    "mode.threads.ServiceThread": ("Worker",),
}
"""The names that we call, set or override, by class."""


class Connection(AIOKafkaConnection):  # type: ignore[misc]
    """A connection that ends at once, whoever closes it.

    Its own way is to wait for the other side to say goodbye, and whoever is silent never does.
    Python 3.11.2 fails to abort what was closed before, so it is aborted first.
    """

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """Close it; the answer can be awaited where it was open."""
        if self._writer is not None:
            self._writer.transport.abort()
        return super().close(reason, exc)


async def hang_up(connection: Connection) -> None:
    """Close a connection that was to be opened, and leave nothing of it behind."""
    closed = connection.close()
    if connection._protocol is not None:
        await closed


def coordinator(consumer: Any) -> Any:
    """Return the coordinator of a consumer that was started."""
    return consumer._coordinator


def set_fetch_bytes(consumer: Any, fetch_bytes: int, in_all_bytes: int) -> None:
    """Change how much is fetched of a partition, and at once; the next fetch asks for it."""
    consumer._fetcher._fetch_max_bytes = in_all_bytes
    consumer._fetcher._max_partition_fetch_bytes = fetch_bytes


def set_fetch_wait(consumer: Any, bytes_min: int, wait_ms: int) -> None:
    """Have brokers answer the next fetch once they have so many bytes, or after so long."""
    consumer._fetcher._fetch_min_bytes = bytes_min
    consumer._fetcher._fetch_max_wait_ms = wait_ms


async def committed(consumer: Any, partition: TopicPartition) -> OffsetAndMetadata | None:
    """Return the group's commit with its metadata, which aiokafka's own method leaves out."""
    found = await consumer._coordinator.fetch_committed_offsets([partition])
    return found.get(partition)


def start_with(
    consumer: AIOKafkaConsumer, make_coordinator: Callable[..., Any]
) -> Coroutine[Any, Any, None]:
    """Start a consumer with another coordinator, which its class names and does not ask for."""
    start = AIOKafkaConsumer.start
    ours = {**start.__globals__, "GroupCoordinator": make_coordinator}
    started: Coroutine[Any, Any, None] = FunctionType(start.__code__, ours)(consumer)
    return started


async def end_of_log(consumer: Any, partition: TopicPartition) -> int:
    """Behind the last record of a partition, be it committed or not."""
    return (await ends_of_logs(consumer, [partition]))[partition]


def led(consumer: Any, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those of some partitions that have a leader, as far as is known; others answer nothing."""
    leaders = {one: consumer._client.cluster.leader_for_partition(one) for one in partitions}
    return {one for one, leader in leaders.items() if leader is not None and leader >= 0}


async def ends_of_logs(
    consumer: Any, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The same of several partitions, by one request to each of their leaders."""
    client = consumer._client
    asked: defaultdict[int, defaultdict[str, list[tuple[int, int]]]]
    asked = defaultdict(lambda: defaultdict(list))
    for partition in partitions:
        leader = client.cluster.leader_for_partition(partition)
        if leader is None or leader < 0:
            raise LeaderNotAvailableError(partition)
        asked[leader][partition.topic].append((partition.partition, _LATEST))
    ends: dict[TopicPartition, int] = {}
    for leader, topics in asked.items():
        request = OffsetRequest(-1, _READ_UNCOMMITTED, [*topics.items()])
        for topic, answers in (await client.send(leader, request)).topics:
            for number, code, _, offset in answers:
                if code:
                    raise for_code(code)
                ends[TopicPartition(topic, number)] = offset
    return ends


_LATEST = -1
_READ_UNCOMMITTED = 0
_ABOUT_OFFSETS = (OffsetCommitRequest, OffsetFetchRequest, OffsetRequest)
_OFFSETS_CONNECTION = 2
"""Behind those that aiokafka knows itself."""


async def ask(consumer: Any, request: Any, node: int | None = None) -> Any:
    """Ask a broker, this one or any, apart from a consumer's fetches; its answer."""
    client = consumer._client
    chosen = client.get_random_node() if node is None else node
    return await client.send(chosen, request, group=_OFFSETS_CONNECTION)


def ask_apart(consumer: AIOKafkaConsumer) -> None:
    """Ask about offsets on a connection of their own.

    A broker answers one request of a connection at a time. Behind a JoinGroup a commit would wait
    until every member has joined, and behind a fetch a question until there are records.
    """
    client = consumer._client
    send = client.send

    async def send_apart(node_id: int, request: Any, **options: Any) -> Any:
        if isinstance(request, _ABOUT_OFFSETS):
            options["group"] = _OFFSETS_CONNECTION
        return await send(node_id, request, **options)

    client.send = send_apart


def find_partitions_fast(producer: Any) -> None:
    """Have a producer look up a topic's partitions without a copy of all of them.

    It asks twice a batch. With hundreds of partitions a seventh of a commit's time were copies.
    """
    cluster = producer.client.cluster

    def partitions_for_topic(topic: str) -> KeysView[int] | None:
        partitions = cluster._partitions.get(topic)
        return None if partitions is None else partitions.keys()

    cluster.partitions_for_topic = partitions_for_topic


def read_nothing(consumer: AIOKafkaConsumer) -> None:
    """Let go of all partitions, and ask the brokers for nothing.

    aiokafka's own way asks for all topics of the cluster, since the consumer has none then.
    """
    consumer._subscription.unsubscribe()


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, whatever its fetches wait for.

    Its own way is to cancel each of its tasks once. While it lets go of what was unassigned, the
    task that fetches takes that for the end of a fetch, and waits for partitions for ever; and a
    fetch that failed and waits to be tried again ends the stop, and not itself alone.
    """
    if (fetcher := consumer._fetcher) is not None:
        while not fetcher._fetch_task.done():
            fetcher._fetch_task.cancel()
            await asyncio.sleep(0)
        for fetch in fetcher._pending_tasks:
            fetch.cancel()
        await asyncio.gather(*fetcher._pending_tasks, return_exceptions=True)
        fetcher._pending_tasks.clear()
    await AIOKafkaConsumer.stop(consumer)


def add_partitions(consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Assign more partitions, paused, while the others are fetched as before.

    With a position, whatever it is, nobody looks for one; who resumes seeks first.
    """
    assignment = consumer._subscription.subscription.assignment
    added = frozenset(partitions)
    for partition in added:
        state = assignment._tp_state[partition] = TopicPartitionState(assignment)
        state.seek(0)
        state.pause()
    assignment._topic_partitions |= added
    # It waits for what it knows of, and would not see that one of these is resumed.
    consumer._fetcher._notify(consumer._fetcher._wait_consume_future)


def drop_partitions(consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Take partitions away while the others are fetched as before."""
    assignment, fetcher = consumer._subscription.subscription.assignment, consumer._fetcher
    dropped = frozenset(partitions)
    assignment._topic_partitions -= dropped
    for partition in dropped:
        # A fetch that is under way may still name it; without a position its answer is left.
        assignment._tp_state[partition].resume()
        assignment._tp_state[partition] = TopicPartitionState(assignment)
        fetcher._records.pop(partition, None)
    fetcher._notify(fetcher._wait_consume_future)
