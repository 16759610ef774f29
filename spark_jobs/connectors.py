"""The connectors with which Spark reads and writes Kafka, Avro, Delta and Iceberg.

Ivy fetches them once and then finds them in its cache. An image has them among Spark's own jars,
and needs no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_2.13:4.0.1"
CONNECTORS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-avro_2.13:4.0.0",
    DELTA,
)
"""Group, name and version of each that every job has."""
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"
"""Only a job with an Iceberg table has this one, for it is larger than all others together."""
_VERSION = re.compile(r"-\d[\w.]*\.jar$")


def connectors_for(*, iceberg: bool) -> tuple[str, ...]:
    """Return the connectors that a job needs."""
    return (*CONNECTORS, ICEBERG) if iceberg else CONNECTORS


def names_iceberg(file: Path) -> bool:
    """Return whether a Python job's own file has the word; a session opens before it is run."""
    return file.is_file() and "iceberg" in file.read_text("utf-8", "replace")


def packages(connectors: Sequence[str] = CONNECTORS) -> str:
    """Return the connectors to fetch, in Spark's notation; empty if Spark has them all."""
    ours = _spark_jars()
    return ",".join(one for one in connectors if not (ours / jar_of(one)).exists())


def fetched(spark: SparkSession) -> dict[str, Path]:
    """Return the jars, by name, that a session has fetched and Spark itself lacks."""
    have = {_VERSION.sub("", jar.name) for jar in _spark_jars().glob("*.jar")}
    jars = {}
    for named in spark.sparkContext.getConf().get("spark.jars", "").split(","):
        jar = Path(unquote(urlsplit(named).path))
        # Ivy puts the group before the name.
        name = jar.name.partition("_")[2]
        if _VERSION.sub("", name) not in have:
            jars[name] = jar
    return jars


def jar_of(connector: str) -> str:
    """Return the name of a connector's file among Spark's own."""
    _, name, version = connector.split(":")
    return f"{name}-{version}.jar"


def _spark_jars() -> Path:
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(home, "jars")
