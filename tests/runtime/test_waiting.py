"""The records that wait for a task are bounded, in number and in bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from headrace.contracts.record import size_bytes
from headrace.services.runtime.input.binding import Batch
from headrace.services.runtime.machine.budget import RECORD_BYTES, Shares
from headrace.services.runtime.worker import Worker
from tests.runtime.sidecar import record

SOURCE = TopicPartition("clicks.raw", 0)


def batch(count: int, value_bytes: int) -> Batch:
    """Return the records of a fetch."""
    records = [record(b"k", bytes(value_bytes), at) for at in range(count)]
    return Batch(SOURCE, 1, records, size_bytes(records))


def has_enough(waiting: int, waiting_bytes: int, more: Batch) -> bool:
    """Whether a task for which so much waits needs no more behind this batch."""
    inbox = SimpleNamespace(records=waiting, size_bytes=waiting_bytes)
    task = SimpleNamespace(inbox=inbox)
    work = SimpleNamespace(shares=Shares(0, 100 * RECORD_BYTES, 0, 0))
    # A whole worker has a thread and a loop of its own, which this does not ask for.
    worker: Any = SimpleNamespace(tasks={SOURCE: task}, work=work)
    return Worker.has_enough_with(worker, more)


@pytest.mark.parametrize(
    ("waiting", "waiting_bytes", "more", "enough"),
    [
        (0, 0, batch(99, 1), False),
        (0, 0, batch(100, 1), True),
        (50, 0, batch(50, 1), True),
        (0, 0, batch(1, 99 * RECORD_BYTES - 2), False),
        (0, 0, batch(1, 99 * RECORD_BYTES - 1), True),
        (1, 60 * RECORD_BYTES, batch(1, 38 * RECORD_BYTES - 1), True),
    ],
)
def test_no_more_is_read_behind_a_batch_that_is_enough(
    waiting: int,
    waiting_bytes: int,
    more: Batch,
    enough: bool,  # noqa: FBT001 - what is expected, not a caller's choice
) -> None:
    assert has_enough(waiting, waiting_bytes, more) is enough
