"""The connectors with which Spark reads and writes Kafka, Avro, Delta and Iceberg.

Ivy fetches them once and then finds them in its cache. An image has them among Spark's own jars,
and needs no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import pyspark

from headrace.contracts.errors import SettingsInvalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Connectors(NamedTuple):
    """Group, name and version of each."""

    kafka: str
    avro: str
    delta: str
    iceberg: str
    """Only a job with an Iceberg table has this one, for it is larger than all others together."""


_KAFKA, _AVRO = "org.apache.spark:spark-sql-kafka-0-10_2.13", "org.apache.spark:spark-avro_2.13"
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime"
OF_VERSIONS = {
    "4.0": Connectors(
        kafka=f"{_KAFKA}:4.0.0",
        avro=f"{_AVRO}:4.0.0",
        delta="io.delta:delta-spark_2.13:4.0.1",
        iceberg=f"{_ICEBERG}-4.0_2.13:1.10.1",
    ),
    "4.1": Connectors(
        kafka=f"{_KAFKA}:4.1.1",
        avro=f"{_AVRO}:4.1.1",
        delta="io.delta:delta-spark_4.1_2.13:4.4.0",
        iceberg=f"{_ICEBERG}-4.1_2.13:1.11.0",
    ),
}
"""The versions of Spark that we run on, and the connectors that each of them takes.

Spark's own are those of the last release that all of them, and what they need, were published in.
"""
_VERSION = re.compile(r"-\d[\w.]*\.jar$")


def connectors_of(version: str) -> Connectors:
    """Return the connectors of a version of Spark; refuse a version without any."""
    found = OF_VERSIONS.get(".".join(version.split(".")[:2]))
    if found is None:
        message = (
            f"headrace runs on Spark {' and '.join(OF_VERSIONS)}, and PySpark is {version} here;"
            " install one that fits, by `pip install 'headrace[spark]'`"
        )
        raise SettingsInvalid(message)
    return found


_HERE = connectors_of(pyspark.__version__)
DELTA, ICEBERG = _HERE.delta, _HERE.iceberg
CONNECTORS = (_HERE.kafka, _HERE.avro, DELTA)
"""Those that every job has."""


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
