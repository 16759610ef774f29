"""Keys of which one task has too much: the stream's records are spread, the table's rows copied.

All records of a key look up in one task. Of a hot key, a record of the stream goes to a task by
where it stands; one of the table goes to the key's own task and, as a copy, to every other one. So
each look-up finds in its task what it would have found in the key's own. All tasks have the
progress of all inputs, so a record leaves in the micro-batch in which it would have left there.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.operators.columns import COPY
from headrace.spark_jobs.operators.topology import LookUp, Topic, Topology
from headrace.spark_jobs.versioned.spread import HOT_KEYS, LISTED
from headrace.spark_jobs.versioned.tables import Versioned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headrace.spark_jobs.operators.frames import Spread


@dataclass(frozen=True)
class HotKeys:
    """The hot keys of a stream that looks up in a table."""

    keys: frozenset[bytes]
    table: int
    """The number of the table's input."""
    stream: int
    tasks: int

    def copies_of(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the copies of the table's records among rows, for each task but their own.

        A record that is dead already is none of the table's.
        """
        keys = rows["key"]
        is_hot = pc.is_in(keys, value_set=pa.array(sorted(self.keys), keys.type))
        is_of_table = pc.and_(pc.equal(rows["input"], self.table), pc.is_null(rows["aside"]))
        copies = _with(rows.filter(pc.and_(is_hot, is_of_table)), "kind", COPY)
        for task in range(self.tasks if copies.num_rows else 0):
            yield _with(copies.filter(pc.not_equal(copies["task"], task)), "task", task)


def listed(keys: Collection[bytes]) -> dict[str, int]:
    """Return the option by which a checkpoint remembers its hot keys; without any there is none."""
    if not keys:
        return {}
    digest = blake2b(repr(sorted(keys)).encode(), digest_size=6).digest()
    return {f"option:{HOT_KEYS}:{LISTED}": int.from_bytes(digest)}


def hot_keys_of(topology: Topology, spread: Spread) -> HotKeys | None:
    """Return the hot keys, None if there are none; refuse a topology in which they would be wrong.

    By stream time a record's result depends on what else came to its task.
    """
    if not spread.hot_keys:
        return None
    problem = _problem(topology, spread)
    if problem is not None:
        message = f"`{topology.name}` has hot keys, {problem}; leave `hot_keys` out"
        raise TopologyRefused(message)
    assert isinstance(topology, LookUp)
    assert isinstance(topology.table, Topic)
    return HotKeys(spread.hot_keys, topology.table.input, topology.stream, spread.tasks)


def _problem(topology: Topology, spread: Spread) -> str | None:
    if spread.by == "partition":
        return "and its tasks are partitions, so no task has records of another"
    if not isinstance(topology, LookUp):
        return "and only a stream that looks up in a table can spread theirs over tasks"
    table = topology.table
    if not isinstance(table, Topic) or not isinstance(table.storage, Versioned):
        return f"and `{table.name}` is not a versioned table read from a topic, as they need"
    if topology.release != "progress":
        return "and releases by stream time, which each task has of its own"
    if topology.corrects:
        return "and corrects what left, which only the one task of a key can do in order"
    if topology.asks_cold:
        return "and asks a cold history, which takes the records of a key from one task"
    return None


def _with(rows: pa.RecordBatch, name: str, number: int) -> pa.RecordBatch:
    """Set a column of rows to one number."""
    field: Any = rows.schema.field(name)
    numbers = pa.repeat(pa.scalar(number, field.type), len(rows))
    return rows.set_column(rows.schema.get_field_index(name), field, numbers)
