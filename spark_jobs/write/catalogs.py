"""Tables of Delta and Iceberg in the catalogs that a session knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import types

from headrace.contracts.errors import JobInvalid, StateUnavailable
from headrace.spark_jobs.write.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

CATALOGS = "spark.sql.catalog."
"""How the settings begin that set up catalogs."""
SPARKS_OWN = "spark_catalog"
REFUSALS = (PySparkException, Py4JJavaError)
"""How Spark refuses to make a table, or to read it."""


def refuse_unknown_catalog(spark: SparkSession, table: str, settings: str) -> None:
    """Refuse a table of a catalog that the session does not know; `settings` are an example."""
    catalog = table.partition(".")[0]
    if catalog != SPARKS_OWN and spark.conf.get(f"{CATALOGS}{catalog}", None) is None:
        message = (
            f"Spark knows no catalog `{catalog}` of `{table}`; set it up, such as by `spark:"
            f" {{{settings}}}`, or write `folder` in place of `table`"
        )
        raise JobInvalid(message)


def is_in_catalog(spark: SparkSession, name: str, title: str) -> bool:
    """Return whether there is a table of this name in SQL; refuse a catalog that cannot say."""
    try:
        return spark.catalog.tableExists(name)
    except REFUSALS as error:
        message = (
            f"{title} cannot be looked up: {first_line(error)}; see that its catalog runs, and that"
            " the settings of Spark have its address, and start the job again"
        )
        raise StateUnavailable(message) from error


def name_in_sql(table: str) -> str:
    """Return the name of a table, its parts quoted."""
    return ".".join(quoted(part) for part in table.split("."))


def type_in_sql(kind: types.DataType) -> str:
    """Return a type, the fields of its structs quoted."""
    match kind:
        case types.StructType():
            fields = (f"{quoted(field.name)}: {type_in_sql(field.dataType)}" for field in kind)
            return f"struct<{', '.join(fields)}>"
        case types.ArrayType():
            return f"array<{type_in_sql(kind.elementType)}>"
        case types.MapType():
            return f"map<{type_in_sql(kind.keyType)}, {type_in_sql(kind.valueType)}>"
        case _:
            return kind.simpleString()


def set_properties(spark: SparkSession, name: str, properties: Mapping[str, str]) -> None:
    """Set properties of a table, in one commit."""
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({noted(properties)})")


def noted(properties: Mapping[str, str]) -> str:
    """Return properties as SQL writes them."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def first_line(error: Exception) -> str:
    """Return what Spark or a table's library says, without where in its code."""
    said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    lines = str(said).strip().splitlines() or [""]
    # Iceberg announces what it does not take, and lists it below.
    ends = 2 if lines[0].endswith(":") else 1
    return " ".join(line.lstrip("- ") for line in lines[:ends])
