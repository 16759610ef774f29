"""The fields of rows: those that stand beside their JSON, or else the JSON parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StructType

from headrace.spark_jobs.shapes import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def has_fields(rows: DataFrame, row_schema: StructType) -> bool:
    """Return whether the fields are there, of the types that the JSON would be read as."""
    if FIELDS not in rows.columns:
        return False
    given = rows.schema[FIELDS].dataType
    types = {each.name: each.dataType for each in given} if isinstance(given, StructType) else {}
    return types == {each.name: each.dataType for each in row_schema}


def fields_of(rows: DataFrame, row_schema: StructType) -> Column:
    """Return the fields of each row as a struct; it is null for a deleted key."""
    parsed = F.from_json(F.col("value").cast("string"), row_schema)
    return F.coalesce(FIELDS, parsed) if has_fields(rows, row_schema) else parsed
