"""What a writer has written, as a number that does not hang on the order.

Values and headers are left out: a dead letter tells where Python raised, and no two runs tell that
alike. Whoever loses or doubles a row has other rows, other keys or other times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

ROW_HASH = "row_hash"
"""The column of a row's own number."""
_NUMBERS = 1 << 64


def row_hash() -> Column:
    """The number of a row; Spark passes over what is null, so that is said beside."""
    return F.xxhash64("target", "key", F.isnull("key"), "timestamp_ms").alias(ROW_HASH)


@dataclass(slots=True)
class Digest:
    """Rows, added up."""

    rows: int = 0
    total: int = 0

    @property
    def keys(self) -> str:
        """The sum as a marker tells it."""
        return f"{self.total:016x}"

    def taken(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a table, which are added."""
        self.rows += table.num_rows
        # Arrow's sum of 64-bit numbers goes round, as this one does.
        added = pc.sum(table.column(ROW_HASH)).as_py() or 0
        self.total = (self.total + added) % _NUMBERS
        return table


def digests_of(rows: DataFrame) -> dict[int, Digest]:
    """By partition, what its writer would write; the frame is read whole."""
    aimed = rows.where(F.col("target").isNotNull())
    # The sum of many 64-bit numbers is none, but a decimal one.
    total = F.sum(F.col(ROW_HASH).cast("decimal(20,0)"))
    found = (
        aimed.groupBy(F.spark_partition_id().alias("writer"))
        .agg(F.count("*").alias("rows"), total.alias("total"))
        .collect()
    )
    return {row["writer"]: Digest(row["rows"], int(row["total"]) % _NUMBERS) for row in found}
