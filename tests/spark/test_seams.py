"""The private names of Spark that we lean on stand in one module, and this Spark has them.

After an upgrade this says what moved, instead of a job that fails, or grows slow, in some way of
its own.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest
from pyspark.daemon import manager
from pyspark.errors.error_classes import ERROR_CLASSES_MAP
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs import seams
from headrace.spark_jobs.cli import failure
from tests.architecture.source import path_of, python_files

SEAMS = "spark_jobs/seams.py"
PUBLIC_NAMES = {
    # An underscore that is no secret: of Kafka's client, and of a class of ours.
    "spark_jobs/versioned/records.py",
    "spark_jobs/write/markers.py",
    "spark_jobs/write/producer.py",
}
PRIVATE = re.compile(
    r"org\.apache\.spark\.sql\.(?:execution\b(?!\.streaming\.state\.RocksDBStateStoreProvider)"
    r"|delta\.\w*Log)"
    r"|pyspark\.(?:java_gateway|context|sql\.streaming\.proto)|StateMessage_pb2|SLF001"
)


@pytest.mark.parametrize("names", [seams.FILES_ON_DISK, seams.STATE_SERVERS, seams.MICRO_BATCHES])
def test_spark_has_one_class_by_its_names(spark: SparkSession, names: Sequence[str]) -> None:
    assert [seams.has_class(spark, name) for name in names].count(True) == 1


def test_a_class_that_no_name_finds_is_a_sentence(spark: SparkSession) -> None:
    assert seams.class_among(spark, ["org.Missing", "java.lang.String"]) == "java.lang.String"
    with pytest.raises(SettingsInvalid, match=r"has no class org\.Missing or org\.Gone, which"):
        seams.class_among(spark, ["org.Missing", "org.Gone"])


def test_a_checkpoint_on_disk_is_kept_by_the_class_that_was_found(spark: SparkSession) -> None:
    found = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert found == seams.class_among(spark, seams.FILES_ON_DISK)


def test_java_and_its_session_are_those_of_spark(spark: SparkSession) -> None:
    assert seams.java_of(spark).java.lang.Math.abs(-1) == 1
    assert seams.java_session_of(spark).sessionState().newHadoopConf() is not None
    assert seams.gateway_of(spark).proc.poll() is None
    assert seams.called_by_java(spark) is seams.gateway_of(spark)
    assert not [name for name in seams.sent_with_tasks(spark) if name.endswith(".jar")]


def test_a_random_frame_is_told_from_one_that_repeats(spark: SparkSession) -> None:
    assert seams.is_deterministic(spark.range(1))
    assert not seams.is_deterministic(spark.range(1).select(F.rand()))


def test_pyspark_has_what_we_override_and_start() -> None:
    assert isinstance(inspect.getattr_static(StreamingQueryListener, "_jlistener"), property)
    assert list(inspect.signature(manager).parameters) == []


def test_spark_raises_what_our_sentences_recognise() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("spark-common-utils_*.jar")
    with ZipFile(jar) as archive:
        conditions = json.loads(archive.read("error/error-conditions.json"))
    assert failure._OTHER_STEPS in conditions  # noqa: SLF001
    assert "PATH_NOT_FOUND" in conditions
    assert "JAVA_GATEWAY_EXITED" in ERROR_CLASSES_MAP


def test_private_names_of_spark_stand_in_one_module() -> None:
    files = python_files("spark_jobs")
    found = {path_of(file) for file in files if PRIVATE.search(file.read_text())}
    assert found == {SEAMS, *PUBLIC_NAMES}
