"""Where a Delta table is: in a catalog of Spark's, or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.errors import PySparkException

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import log_of_folder, log_of_table
from headrace.spark_jobs.write.catalogs import (
    CATALOGS,
    REFUSALS,
    SPARKS_OWN,
    first_line,
    is_in_catalog,
    name_in_sql,
    refuse_unknown_catalog,
)
from headrace.spark_jobs.write.column_types import refuse_untyped
from headrace.spark_jobs.write.parquet import has_rows_of_parquet
from headrace.spark_jobs.write.quoted import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_METASTORE = "spark.sql.catalogImplementation"
_IN_MEMORY = "in-memory"
_OF_DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"


@dataclass(frozen=True)
class DeltaPlace:
    """The place of a table: exactly one of a name and a folder."""

    table: str | None
    """`database.table` in Spark's own catalog, or `catalog.database.table`."""
    folder: str | None

    @property
    def title(self) -> str:
        """The place in messages."""
        return self.folder if self.folder is not None else f"`{self.table}`"

    def check(self, spark: SparkSession) -> None:
        """Refuse a session without the table's catalog, or whose catalog forgets the table."""
        if self.table is None:
            return
        name = _with_catalog(self.table)
        catalog = name.partition(".")[0]
        refuse_unknown_catalog(spark, name, f"{CATALOGS}{catalog}: ...")
        # A catalog that is away is said before anything is read.
        is_there = self.exists(spark)
        if catalog == SPARKS_OWN and _forgets(spark) and not is_there:
            message = (
                f"{self.title} is not there, and Spark's own catalog forgets at the job's end what"
                f" the job makes; keep tables in a metastore, by `spark: {{{_METASTORE}: hive}}` or"
                " in `spark-defaults.conf` for a job in Python, or write `folder` in place of"
                " `table`"
            )
            raise JobInvalid(message)

    def name_in(self, spark: SparkSession) -> str:
        """Return the table's name in Spark's SQL, where a path that is no URL is none."""
        if self.folder is not None:
            return f"delta.{quoted(Folder(spark, self.folder).url)}"
        assert self.table is not None
        return name_in_sql(_with_catalog(self.table))

    def exists(self, spark: SparkSession) -> bool:
        """Return whether there is a table."""
        if self.folder is not None:
            return DeltaTable.isDeltaTable(spark, self.folder)
        return is_in_catalog(spark, self.name_in(spark), self.title)

    def make(self, spark: SparkSession, schema: StructType) -> None:
        """Make an empty table, if there is none."""
        if not self.exists(spark):
            refuse_untyped(schema)
            if self.folder is not None and has_rows_of_parquet(Folder(spark, self.folder)):
                message = (
                    f"{self.folder} has rows that a job wrote to Parquet, which a `VACUUM` of a"
                    " table there would remove; give the table a folder of its own"
                )
                raise JobInvalid(message)
        try:
            if self.folder is not None:
                make_table(spark, self.folder, schema)
                return
            empty = spark.createDataFrame([], schema).write.format("delta").mode("ignore")
            empty.saveAsTable(self.name_in(spark))
        except REFUSALS as error:
            message = f"{self.title} cannot be made: {first_line(error)}"
            if isinstance(error, PySparkException) and error.getCondition() == _NOT_EMPTY:
                message += (
                    " A job that died while it made the table left a folder without rows, which you"
                    " may delete; else give the job another table"
                )
            raise JobInvalid(message) from error

    def read(self, spark: SparkSession) -> DeltaTable:
        """Return Delta's own object for the table; refuse a table of others."""
        if self.folder is not None:
            return DeltaTable.forPath(spark, self.folder)
        try:
            return DeltaTable.forName(spark, self.name_in(spark))
        except REFUSALS as error:
            message = f"{self.title} cannot be read as a table of Delta: {first_line(error)}"
            raise JobInvalid(message) from error

    def log(self, spark: SparkSession) -> Any:
        """Return the log of the table."""
        if self.folder is not None:
            return log_of_folder(spark, self.folder)
        return log_of_table(self.read(spark))


def make_table(spark: SparkSession, folder: str, schema: StructType | str) -> None:
    """Make an empty table in a folder, if there is none.

    A driver that was killed while it made one leaves a log without a first entry. Delta's own
    `createIfNotExists` takes that for a table, and then does not find it.
    """
    spark.createDataFrame([], schema).write.format("delta").mode("ignore").save(folder)


def _with_catalog(table: str) -> str:
    """Return a name with its catalog; a session may have another one than Spark's own current."""
    return table if table.count(".") > 1 else f"{SPARKS_OWN}.{table}"


def _forgets(spark: SparkSession) -> bool:
    """Return whether Spark's own catalog has its tables in memory alone."""
    is_deltas = spark.conf.get(f"{CATALOGS}{SPARKS_OWN}", _OF_DELTA) == _OF_DELTA
    return is_deltas and spark.conf.get(_METASTORE, _IN_MEMORY) == _IN_MEMORY
