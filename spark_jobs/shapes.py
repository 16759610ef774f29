"""The columns of frames and the verdicts of their rows, wherever they are read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

if TYPE_CHECKING:
    from pyspark.sql import Column

RECORD_COLUMNS = (
    "input", "topic", "partition", "offset", "timestamp_ms", "key", "value", "headers",
)  # fmt: skip

ORIGIN = ("topic", "partition", "offset")
"""Of these, where a record stood in Kafka."""
CARRIED = (*ORIGIN, "timestamp_ms", "key", "value")
"""Of these, the columns that a row has of its record on every way to a task."""

JOINED = "joined"
"""A verdict: a stream record and the value that it met."""
CORRECTED = "corrected"
"""A verdict: the value that an earlier stream record meets now; null if it meets none any more."""
COLD = "cold"
"""A verdict: a stream record older than its table's history; a cold history may know more."""
CHANGED = "changed"
"""A verdict: a key's new value in a computed table; null is a tombstone."""
LATE = "late"
"""A verdict: a record behind everything that was promised to wait for it; it was still used."""
DEAD = "dead"
"""A verdict: a record that cannot be read; its headers have the reason."""
FAILED = "failed"
"""A verdict: how many records a step failed on in one way, which `reason` describes."""
COUNT = "count"
"""A verdict: the value of a number of the task; `reason` is its name."""
SAID = "said"
"""A verdict: a sentence for the log, in `reason`."""
LOWEST = "lowest"
"""A verdict: a task that holds `added` waits for the place in `reason`, which is at `number`."""
PASSED = "passed"
"""A verdict: the task has released all rows before this row's time."""
FIELDS = "_fields"
"""The column of a row's fields as a struct, beside the JSON of them; null where a row has none."""
BUNDLE = "bundle"
"""The column of bundles of rows; beside it stands only `task`."""
READ = "_read"
"""The column of a readable record's fields as a struct, parsed once and beside its bytes."""
POSITION = "position"
"""A verdict: the partition was read up to this offset; the row ends at the operators."""


def unsigned(column: Column) -> Column:
    """Return the number of big-endian bytes, at most eight."""
    return F.conv(F.hex(column), 16, 10).cast("bigint")
