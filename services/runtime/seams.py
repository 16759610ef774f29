"""Every private name of Faust and aiokafka that we lean on, and nothing else.

The versions are pinned, and `tests/runtime/test_seams.py` fails loudly when an upgrade moves one of
these. What is public is used where it is needed; what is here is used from here alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiokafka.consumer import fetcher as _fetcher
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from contracts.record import Record

FAUST = "0.15.3"
AIOKAFKA = "0.14.0"

PRIVATE_NAMES = {
    "aiokafka.consumer.AIOKafkaConsumer": ("_coordinator", "_fetcher"),
    "aiokafka.consumer.fetcher.Fetcher": ("_max_partition_fetch_bytes",),
    "aiokafka.consumer.fetcher.PartitionRecords": ("_consumer_record", "_records_iterator"),
    "aiokafka.consumer.group_coordinator.GroupCoordinator": ("fetch_committed_offsets",),
    "aiokafka.producer.AIOKafkaProducer": ("_txn_manager",),
    "aiokafka.producer.message_accumulator.BatchBuilder": ("_builder", "_relative_offset"),
    "aiokafka.protocol.api.RequestStruct": ("FLEXIBLE_VERSION",),
    "aiokafka.protocol.struct.Struct": ("SCHEMA",),
    "faust.App": (
        "BootStrategy",
        "_assignment",
        "_create_directories",
        "_fetcher",
        "_new_transport",
        "_on_partitions_assigned",
        "_on_partitions_revoked",
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
        "_create_worker_consumer",
        "_ensure_consumer",
        "_fetch_records",
    ),
    "faust.transport.drivers.aiokafka.Consumer": (
        "RebalanceListener",
        "_drain_messages",
        "_new_consumer_thread",
        "_on_partitions_assigned",
        "_on_partitions_revoked",
        "_thread",
        "ack",
        "commit",
        "on_partitions_assigned",
        "on_partitions_revoked",
    ),
    "faust.transport.drivers.aiokafka.ConsumerRebalanceListener": (
        "_thread",
        "on_partitions_assigned",
        "on_partitions_revoked",
    ),
    "faust.transport.drivers.aiokafka.Transport": ("Consumer",),
    "mode.services.Service": ("mundane_level",),
    "mode.threads.ServiceThread": ("Worker",),
}
"""What is called, set or overridden, by class."""


class _Records(_fetcher.PartitionRecords):  # type: ignore[misc]
    """Makes our record at once, instead of aiokafka's dataclass and then ours."""

    def __iter__(self) -> Iterator[Record]:
        """The generator itself, which saves a call a record."""
        records: Iterator[Record] = self._records_iterator
        return records

    def _consumer_record(self, tp: TopicPartition, record: Any) -> Record:
        headers = record.headers
        # Half the price of Record(...), which is a Python function.
        return _new_tuple(
            Record,
            (
                record.key,
                record.value,
                record.timestamp,
                tuple(headers) if headers else (),
                tp[0],
                tp[1],
                record.offset,
            ),
        )


_new_tuple = tuple.__new__


def install_records() -> None:
    """From now on every consumer of this process hands out `contracts.record.Record`."""
    _fetcher.PartitionRecords = _Records


def set_fetch_bytes(consumer: Any, fetch_bytes: int) -> None:
    """Change how much of a partition is fetched at once; the next fetch asks for it."""
    consumer._fetcher._max_partition_fetch_bytes = fetch_bytes


async def committed(consumer: Any, partition: TopicPartition) -> OffsetAndMetadata | None:
    """What the group committed, with its metadata, which aiokafka's own method leaves out."""
    found = await consumer._coordinator.fetch_committed_offsets([partition])
    return found.get(partition)


def producer_id(producer: Any) -> int:
    """The number by which the brokers know a producer that was started."""
    identity: int = producer._txn_manager.producer_id
    return identity


def fill(batch: Any, rows: Sequence[Record], start: int) -> int:
    """Append rows from `start` on; the index of the first that did not fit."""
    append = batch._builder.append
    offset = batch._relative_offset
    for index in range(start, len(rows)):
        key, value, timestamp_ms, headers, *_ = rows[index]
        fitted = append(
            offset, timestamp_ms, key=key, value=value, headers=list(headers) if headers else _NONE
        )
        if fitted is None:
            batch._relative_offset = offset
            batch.close()
            return index
        offset += 1
    batch._relative_offset = offset
    return len(rows)


def fill_rows(
    batch: Any, rows: Sequence[tuple[bytes, bytes | None]], start: int, timestamp_ms: int
) -> int:
    """The same for rows that have a key and a value alone."""
    append = batch._builder.append
    offset = batch._relative_offset
    for index in range(start, len(rows)):
        key, value = rows[index]
        if append(offset, timestamp_ms, key=key, value=value, headers=_NONE) is None:
            batch._relative_offset = offset
            batch.close()
            return index
        offset += 1
    batch._relative_offset = offset
    return len(rows)


_NONE: list[tuple[str, bytes]] = []
