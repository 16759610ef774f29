"""Where an Iceberg table is: in a catalog that the user set up, or in a folder without one.

A folder's table is one of Iceberg's Hadoop catalog, whose warehouse is the folder around it. The
session gets such a catalog under a name of ours, beside the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.connectors import ICEBERG
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import has_class, java_of, java_session_of
from headrace.spark_jobs.write.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_CATALOGS = "spark.sql.catalog."
_SPARKS_OWN = "spark_catalog"
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
        if self.table is None:
            return
        catalog = self.table.partition(".")[0]
        if catalog != _SPARKS_OWN and spark.conf.get(f"{_CATALOGS}{catalog}", None) is None:
            message = (
                f"Spark knows no catalog `{catalog}` of {self.title}; set it up, such as by `spark:"
                f" {{{_CATALOGS}{catalog}: {_OF_ICEBERG}, {_CATALOGS}{catalog}.type: ...}}`, or"
                " write `folder` in place of `table`"
            )
            raise JobInvalid(message)

    def name_in(self, spark: SparkSession) -> str:
        """Return the table's name in Spark's SQL; a folder's catalog is set up if it is not."""
        if self.folder is None:
            assert self.table is not None
            return ".".join(f"`{part}`" for part in self.table.split("."))
        around, name = Folder(spark, self.folder).parent_and_name
        catalog = f"headrace_{crc32(around.encode()):08x}"
        settings = {"": _OF_ICEBERG, ".type": "hadoop", ".warehouse": around}
        for setting, value in settings.items():
            spark.conf.set(f"{_CATALOGS}{catalog}{setting}", value)
        return f"{catalog}.{quoted(name)}"

    def exists(self, spark: SparkSession) -> bool:
        """Return whether there is a table."""
        return spark.catalog.tableExists(self.name_in(spark))

    def make(self, spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> None:
        """Make an empty table with these columns, each of which may be null."""
        columns = [f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema]
        noted = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        try:
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name_in(spark)} ({', '.join(columns)})"
                f" USING iceberg TBLPROPERTIES ({noted})"
            )
        except (PySparkException, Py4JJavaError) as error:
            message = f"{self.title} cannot be made: {_first_line(error)}"
            raise JobInvalid(message) from error

    def set(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        noted = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        spark.sql(f"ALTER TABLE {self.name_in(spark)} SET TBLPROPERTIES ({noted})")

    def read(self, spark: SparkSession) -> Any:
        """Return Iceberg's own object for the table as it is now; refuse a table of others."""
        tables = java_of(spark).org.apache.iceberg.spark.Spark3Util
        try:
            table = tables.loadIcebergTable(java_session_of(spark), self.name_in(spark))
        except (PySparkException, Py4JJavaError) as error:
            message = f"{self.title} cannot be read as a table of Iceberg: {_first_line(error)}"
            raise JobInvalid(message) from error
        # A catalog may have kept it since an earlier look.
        table.refresh()
        return table


def _first_line(error: Exception) -> str:
    """Return what Spark or Iceberg says, without where in its code."""
    said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(said).strip().partition("\n")[0]
