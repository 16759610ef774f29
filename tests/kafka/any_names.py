"""Records with header names that are no text: other clients write them, and aiokafka's will not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import cycle

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from headrace.contracts.record import Record

_BATCH_BYTES = 1 << 20


class AnyName:
    """A header's name as the bytes that it stands for: the builder asks for nothing else."""

    def __init__(self, name: str) -> None:
        """Bytes that are not UTF-8 are escaped as surrogates."""
        self._name = name

    def encode(self, _encoding: str) -> bytes:
        """As it is written."""
        return self._name.encode(errors="surrogateescape")


def builder_of(records: Sequence[Record], compression: int = 0) -> _DefaultRecordBatchBuilderPy:
    """One batch with all these records."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, 0, _BATCH_BYTES)
    for at, (key, value, timestamp_ms, headers, *_) in enumerate(records):
        names = [(AnyName(name), content) for name, content in headers]
        fits = builder.append(at, timestamp_ms, key, value, names)
        assert fits is not None, "all of it is one batch"
    return builder


def produce_any_names(
    servers: str, topic: str, *batches: Sequence[Record], codecs: Sequence[int] = (0,)
) -> None:
    """Write batches to partition 0, packed by these codecs in turn."""
    asyncio.run(_produce(servers, topic, batches, codecs))


async def _produce(
    servers: str, topic: str, batches: Sequence[Sequence[Record]], codecs: Sequence[int]
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_request_size=_BATCH_BYTES * 2)
    await producer.start()
    try:
        for records, codec in zip(batches, cycle(codecs)):
            batch = producer.create_batch()
            # There is no other way to such a name.
            batch._builder = builder_of(records, codec)  # noqa: SLF001
            batch._relative_offset = len(records)  # noqa: SLF001
            await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()
