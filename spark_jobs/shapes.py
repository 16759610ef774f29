"""What frames look like, wherever they are read, worked on or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

if TYPE_CHECKING:
    from pyspark.sql import Column

RECORD_COLUMNS = (
    "input", "topic", "partition", "offset", "timestamp_ms", "key", "value", "headers",
)  # fmt: skip

JOINED = "joined"
"""A verdict: a stream record and what it met."""
CORRECTED = "corrected"
"""A verdict: what a stream record that was told before meets now; null is nothing any more."""
COLD = "cold"
"""A verdict: a stream record older than what its table remembers; a cold history may know more."""
CHANGED = "changed"
"""A verdict: a key's new value in a table that was computed; null is a tombstone."""
LATE = "late"
"""A verdict: a record behind everything that was promised to wait for it; it was still used."""
DEAD = "dead"
"""A verdict: a record that cannot be read; its headers say why."""
FAILED = "failed"
"""A verdict: how many records a step failed on in one way, which `reason` says."""
COUNT = "count"
"""A verdict: how a number of the task stands; `reason` is its name."""
SAID = "said"
"""A verdict: a sentence for people, in `reason`."""
LOWEST = "lowest"
"""A verdict: a task that holds `added` waits for the place in `reason`, which is at `number`."""
REACHED = "reached"
"""A verdict: the partition was read up to this offset; it goes no further than the operators."""


def unsigned(column: Column) -> Column:
    """The number that big-endian bytes, eight at the most, stand for."""
    return F.conv(F.hex(column), 16, 10).cast("bigint")
