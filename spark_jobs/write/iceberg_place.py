"""Where an Iceberg table is: in a catalog that the user set up, or in a folder without one.

A folder's table is one of Iceberg's Hadoop catalog, whose warehouse is the folder around it. The
session gets such a catalog under a name of ours, beside the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.connectors import ICEBERG
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import has_class, java_of, java_session_of
from headrace.spark_jobs.write.catalogs import (
    CATALOGS,
    REFUSALS,
    first_line,
    is_in_catalog,
    name_in_sql,
    noted,
    refuse_unknown_catalog,
    set_properties,
    type_in_sql,
)
from headrace.spark_jobs.write.column_types import refuse_untyped
from headrace.spark_jobs.write.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_OF_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
_TABLES = "org.apache.iceberg.spark.Spark3Util"


@dataclass(frozen=True)
class IcebergPlace:
    """The place of a table: exactly one of a name and a folder."""

    table: str | None
    folder: str | None

    @property
    def title(self) -> str:
        """The place in messages."""
        return f"`{self.table}`" if self.folder is None else self.folder

    def check(self, spark: SparkSession) -> None:
        """Refuse a session without Iceberg's library, or without the table's catalog."""
        if not has_class(spark, _TABLES):
            message = (
                "this session of Spark lacks Iceberg's library; call `hr.iceberg` in the job's own"
                f" file, or set `spark.jars.packages` to `{ICEBERG}`"
            )
            raise JobInvalid(message)
        if self.table is not None:
            setting = f"{CATALOGS}{self.table.partition('.')[0]}"
            example = f"{setting}: {_OF_ICEBERG}, {setting}.type: ..."
            refuse_unknown_catalog(spark, self.table, example)
            # A catalog that is away is said before anything is read.
            self.exists(spark)

    def name_in(self, spark: SparkSession) -> str:
        """Return the table's name in Spark's SQL; a folder's catalog is set up if it is not."""
        if self.folder is None:
            assert self.table is not None
            return name_in_sql(self.table)
        around, name = Folder(spark, self.folder).parent_and_name
        catalog = f"headrace_{crc32(around.encode()):08x}"
        settings = {"": _OF_ICEBERG, ".type": "hadoop", ".warehouse": around}
        for setting, value in settings.items():
            spark.conf.set(f"{CATALOGS}{catalog}{setting}", value)
        return f"{catalog}.{quoted(name)}"

    def exists(self, spark: SparkSession) -> bool:
        """Return whether there is a table."""
        return is_in_catalog(spark, self.name_in(spark), self.title)

    def make(self, spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> None:
        """Make an empty table with these columns, each of which may be null."""
        if not self.exists(spark):
            refuse_untyped(schema)
        columns = [f"{quoted(field.name)} {type_in_sql(field.dataType)}" for field in schema]
        try:
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name_in(spark)} ({', '.join(columns)})"
                f" USING iceberg TBLPROPERTIES ({noted(properties)})"
            )
        except REFUSALS as error:
            message = f"{self.title} cannot be made: {first_line(error)}"
            raise JobInvalid(message) from error

    def set(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        set_properties(spark, self.name_in(spark), properties)

    def read(self, spark: SparkSession) -> Any:
        """Return Iceberg's own object for the table as it is now; refuse a table of others."""
        tables = java_of(spark).org.apache.iceberg.spark.Spark3Util
        try:
            table = tables.loadIcebergTable(java_session_of(spark), self.name_in(spark))
        except REFUSALS as error:
            message = f"{self.title} cannot be read as a table of Iceberg: {first_line(error)}"
            raise JobInvalid(message) from error
        # A catalog may have kept it since an earlier look.
        table.refresh()
        return table
