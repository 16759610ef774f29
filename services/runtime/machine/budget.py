"""Each part's share of `HEADRACE_MEMORY`: pure, over numbers.

The promise is the process's memory as the system counts it, so what Python takes before the first
record counts as well, and what a partition takes that has nothing to do. The rest is divided:

    state     RocksDB's block cache, with all write buffers in it
    fetched   what fetches have brought, as bytes
    waiting   records that were brought and not processed, and those of an open transaction
    held      records that operators hold in memory; the others stand on disk alone

A partition's share of a part is an equal one. Bytes beyond it stay on disk, or pause their source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.policies import (
    AnyOperator,
    BufferPolicy,
    MergePolicy,
    ReorderPolicy,
    SuppressPolicy,
)

MIB = 1 << 20
PROCESS_BYTES = 104 * MIB
"""Python, its libraries, and threads that run."""
PARTITION_BYTES = 2 * MIB
"""A task, its database, its producer with its connections, and what the allocator keeps of it."""
_LEAST_OF_PARTITION_BYTES = 1 * MIB
"""To be divided, or not even one batch of records fits into each part."""
_STATE, _FETCHED, _WAITING, _HELD = 0.35, 0.10, 0.20, 0.25
"""Of what is divided; what is left is the allocator's, and for what a commit makes of rows."""
RECORD_BYTES = 400
"""The memory of a record as an object, beside its bytes."""
_COPIES = 3
"""A record of an open transaction stands in it as it came, as a row, and in a batch on its way."""
_HELD_RECORDS_MAX = 50_000
_FETCH_BYTES_MIN = 16 << 10
_FETCH_BYTES_MAX = 512 << 10
_WAITING_BYTES_MIN = 32 << 10


def weight(records: int, size_bytes: int) -> int:
    """Return the memory of so many records, whose keys and values have so many bytes."""
    return records * RECORD_BYTES + size_bytes


class Shares(NamedTuple):
    """The share of one of so many partitions, and the share of all of them together."""

    fetch_bytes: int
    """At once, of a partition; a batch that is larger comes whole, as the protocol has it."""
    waiting_bytes: int
    """Of a partition's records that wait, each with `RECORD_BYTES`."""
    open_bytes: int
    """Of a partition's records in its open transaction, counted in the same way."""
    held_bytes: int
    """Of a partition's records that all of its operators hold in memory, counted in this way."""


class Budget(NamedTuple):
    """A whole process's, for a number of partitions that may change."""

    total_bytes: int

    def shares(self, partitions: int) -> Shares:
        """A partition's; of a process that has too many of them, the least that works."""
        count = max(1, partitions)
        divided_bytes = max(
            count * _LEAST_OF_PARTITION_BYTES,
            self.total_bytes - PROCESS_BYTES - count * PARTITION_BYTES,
        )
        each_bytes = divided_bytes / count
        waiting_bytes = max(_WAITING_BYTES_MIN, int(each_bytes * _WAITING / (1 + _COPIES)))
        return Shares(
            min(_FETCH_BYTES_MAX, max(_FETCH_BYTES_MIN, int(each_bytes * _FETCHED))),
            waiting_bytes,
            waiting_bytes,
            int(each_bytes * _HELD),
        )

    def state_bytes(self, partitions: int) -> int:
        """Return RocksDB's share, of all partitions together."""
        least = least_bytes(partitions)
        free_bytes = max(self.total_bytes, least) - PROCESS_BYTES - partitions * PARTITION_BYTES
        return int(free_bytes * _STATE)

    def fetched_bytes(self, partitions: int) -> int:
        """Return the most that one answer of a broker may bring, of all partitions together."""
        return max(_FETCH_BYTES_MAX, partitions * self.shares(partitions).fetch_bytes)

    def fits(self, partitions: int) -> bool:
        """Whether the promise can be kept for so many."""
        return self.total_bytes >= least_bytes(partitions)


def least_bytes(partitions: int) -> int:
    """With less, the promise cannot be kept."""
    return PROCESS_BYTES + max(1, partitions) * (PARTITION_BYTES + _LEAST_OF_PARTITION_BYTES)


def budget_of(given_bytes: int | None, machine_bytes: int) -> Budget:
    """Return what was set, or half of the machine; SettingsInvalid where no partition fits."""
    total_bytes = machine_bytes // 2 if given_bytes is None else given_bytes
    if total_bytes >= least_bytes(1):
        return Budget(total_bytes)
    least = f"{-(-least_bytes(1) // MIB)}MiB"
    if given_bytes is None:
        message = (
            f"HEADRACE_MEMORY: is not set, and half of what this machine or container has is"
            f" {total_bytes // MIB}MiB; give it more, or set at least {least}"
        )
    else:
        message = (
            f"HEADRACE_MEMORY: {total_bytes // MIB}MiB is too little for a whole process, of which"
            f" Python takes {PROCESS_BYTES // MIB}MiB; set at least {least}"
        )
    raise SettingsInvalid(message)


def with_held_bounds(policies: Sequence[AnyOperator], held_bytes: int) -> list[AnyOperator]:
    """The same operators, where those hold no more in memory for which nobody set a bound.

    Records that do not fit stand on disk alone; the results are the same.
    """
    count = max(1, sum(map(_is_unbounded, policies)))
    # Half of it for what records say, half for what they are as objects.
    bytes_max = held_bytes // count // 2
    records_max = min(_HELD_RECORDS_MAX, bytes_max // RECORD_BYTES)
    bounds = BufferPolicy(records=records_max, bytes=bytes_max, when_full="spill")
    return [
        policy.model_copy(update={"buffer": bounds}) if _is_unbounded(policy) else policy
        for policy in policies
    ]


def _is_unbounded(policy: AnyOperator) -> bool:
    if isinstance(policy, MergePolicy | ReorderPolicy | SuppressPolicy):
        return policy.buffer.when_full is None
    return False
