"""Digest the rows of a writer into a number that does not depend on their order.

The digest leaves out values and headers: a dead letter has the traceback of Python, which differs
between runs. If a row is lost or doubled, rows, keys or times differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

ROW_HASH = "row_hash"
"""The column of a row's own number."""
_NUMBERS = 1 << 64
_SUM = "decimal(20,0)"
"""The sum of many 64-bit numbers does not fit 64 bits, but fits a decimal."""


def row_hash() -> Column:
    """Hash a row; Spark's hash skips nulls, so a null key gets a column of its own."""
    return F.xxhash64("target", "key", F.isnull("key"), "timestamp_ms").alias(ROW_HASH)


@dataclass(slots=True)
class Digest:
    """The number of rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    @property
    def keys(self) -> str:
        """The sum in the notation of a marker."""
        return f"{self.total:016x}"

    def add(self, other: Digest) -> None:
        """Add the rows of another digest."""
        self.rows += other.rows
        self.total = (self.total + other.total) % _NUMBERS

    def taken(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Add the rows of a table, and return the table."""
        # Arrow's sum of 64-bit numbers wraps around, as that of a digest does.
        self.add(Digest(table.num_rows, pc.sum(table.column(ROW_HASH)).as_py() or 0))
        return table


def digest_of_table(rows: DataFrame) -> Digest:
    """Return the digest of the rows of a table; this reads the whole frame."""
    hashed = F.xxhash64("key", F.isnull("key"), "timestamp").cast(_SUM)
    return together(rows.agg(F.count("*").alias("rows"), F.sum(hashed).alias("total")).collect())


def together(parts: Iterable[Sequence[Any]]) -> Digest:
    """Return the digest of all rows by those of their parts."""
    found = Digest()
    for rows, total in parts:
        found.add(Digest(rows, int(total or 0)))
    return found


def digests_of(rows: DataFrame) -> dict[int, Digest]:
    """Return, by partition, the digest of the rows to write; this reads the whole frame."""
    aimed = rows.where(F.col("target").isNotNull())
    total = F.sum(F.col(ROW_HASH).cast(_SUM))
    found = (
        aimed.groupBy(F.spark_partition_id().alias("writer"))
        .agg(F.count("*").alias("rows"), total.alias("total"))
        .collect()
    )
    return {row["writer"]: Digest(row["rows"], int(row["total"]) % _NUMBERS) for row in found}
