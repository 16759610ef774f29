"""A Spark session with the settings that our operators need."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf
from pyspark.errors import IllegalArgumentException, PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs import daemon
from headrace.spark_jobs.connectors import CONNECTORS, DELTA, packages
from headrace.spark_jobs.home import AVRO_LIMITS, ivy_settings, java_options, spark_home
from headrace.spark_jobs.java import check_java
from headrace.spark_jobs.seams import (
    FILES_ON_DISK,
    MICRO_BATCHES,
    STATE_SERVERS,
    begin_java,
    class_among,
    java_of,
    sent_with_tasks,
)
from headrace.spark_jobs.worker import forget_jars, without_jars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEVELS = {
    # Spark warns of each look-up of a row that is not there yet.
    **dict.fromkeys(STATE_SERVERS, "ERROR"),
    # The error of a failed query is also raised, and our caller reports it.
    **dict.fromkeys(MICRO_BATCHES, "OFF"),
}
_STATE = "spark.sql.streaming.stateStore"
_ARROW = "spark.sql.execution.arrow"
_JAVA = "spark.driver.defaultJavaOptions"
_MORE_JAVA = "spark.driver.extraJavaOptions"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Where spark-submit tells Python its Java."""
_JAVA_ENDED = (
    "Java ended before Spark began; the end of Spark's log says why. Look at the job's settings"
    f" under `spark`, such as `spark.driver.memory` and `{_MORE_JAVA}`, and at JDK_JAVA_OPTIONS of"
    " the environment"
)
_PACKAGE = re.compile(r"^(?:\w+\.)+(?=[\w$]+(?::|$))")
"""The package of a Java exception, before its class."""
_TIME_ZONE = "spark.sql.session.timeZone"
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
PACKAGES = "spark.jars.packages"
FILES, _DEPLOY_MODE = "spark.files", "spark.submit.deployMode"
_FOR_SUBMIT = (
    "spark.archives",
    "spark.driver.",
    FILES,
    "spark.kubernetes.",
    "spark.pyspark.",
    "spark.submit.",
    "spark.yarn.",
)
"""How the names of settings begin that spark-submit needs before the driver is there."""
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_DELTA = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SETTINGS = {
    **_DELTA,
    _TIME_ZONE: "UTC",
    # A copy of a task would do all its work twice, though without harm.
    "spark.speculation": "false",
    "spark.executor.defaultJavaOptions": AVRO_LIMITS,
    # Spark would write INT96, which is deprecated. It has neither a zone nor bounds, by which a
    # reader skips what is too old.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Progress bars of micro-batches have no reader, and break the lines of a log.
    "spark.ui.showConsoleProgress": "false",
    # PySpark would ask Java, at every operation on a column, where in Python it stands; Java looks
    # through all jars for that. A micro-batch is written by a hundred such operations.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Stateful processors need RocksDB; with this, a commit uploads changes, not whole files.
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # All partitions of an executor share one cache and one set of write buffers.
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "256",
    # Spark keeps the last hundred classes that it has compiled, in four parts by their hash. A
    # micro-batch into a table of Delta needs more, and so compiled thirty classes anew each time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Delta would rebuild its snapshot of a table in fifty tasks, however small the table is.
    "spark.databricks.delta.snapshotPartitions": "8",
    # Counting rows costs a look-up a put, and the number of our rows, buckets, tells nothing.
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # Spark's pages show the last micro-batches; of a thousand it would keep the plans.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    # Spark says so to some Python workers and not to others, and starts a daemon for each kind.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    # Spark would wait for its micro-batch as long as Kafka is gone. Docker gives the job 45 s.
    "spark.sql.streaming.stopTimeout": "20s",
    # On a busy machine Python may take longer to authenticate than Spark's fifteen seconds.
    "spark.python.authenticate.socketTimeout": "300s",
    # A column of Arrow holds two gigabytes, and Java's memory less.
    f"{_ARROW}.maxBytesPerBatch": str(64 << 20),
    # A group comes in one piece if possible, since every piece costs a frame of its own.
    f"{_ARROW}.maxRecordsPerBatch": "100000",
    # Here a row is a bundle of half a megabyte (`write.bundled`). Spark does not look at its size.
    f"{_ARROW}.transformWithStateInPandas.maxRecordsPerBatch": "250",
}


def open_session(
    name: str,
    *,
    master: str | None = None,
    shuffle_partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    checkpoint: str = "",
    connectors: Sequence[str] = CONNECTORS,
) -> SparkSession:
    """Open a session, or return the open one, which keeps its own settings.

    Without a master, it is spark-submit's session. `shuffle_partitions` is fixed for the life of a
    checkpoint, as Spark requires. `settings` override ours, and add to lists. `checkpoint` is the
    folder or URL of the query's checkpoint; without it, a folder of this machine is assumed.
    """
    own = settings or {}
    chosen = dict(SETTINGS)
    if master is not None and DELTA not in connectors:
        # Without it, Spark would look for its catalog at the first function that it lacks.
        for setting in _DELTA:
            del chosen[setting]
    if master is not None and master.startswith("local"):
        check_java()
        # Executors of a local cluster would listen where the machine's name points.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        # On one machine, shuffled data is read again from memory at once; compressing it took a
        # fifteenth of a join's CPU time.
        chosen["spark.shuffle.compress"] = "false"
        # C's allocator keeps memory for Java's threads, most of which need it once: 30 MiB of a job
        # with few rows.
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
        # Arrow's own allocator keeps what workers no longer need: 20 MiB of a job with few rows,
        # 100 with a million records a micro-batch.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        # Workers would start whichever Python comes first on the path; not all of them ask Spark's
        # own setting.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # On other machines, only workers may have this code, from an archive; the daemon would not.
        chosen["spark.python.daemon.module"] = daemon.__name__
        home = os.environ.setdefault("SPARK_HOME", str(spark_home()))
        chosen[_JAVA] = java_options(Path(home), own.get(_MORE_JAVA, ""))
    missing = packages(connectors)
    if missing:
        chosen |= {PACKAGES: missing, **ivy_settings()}
    if shuffle_partitions is not None:
        chosen["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    builder = SparkSession.builder.appName(name)
    for setting, value in beside(chosen, submitted() if master is None else {}, own).items():
        builder = builder.config(setting, value)
    spark = _begin(builder if master is None else builder.master(master), own)
    if _is_on_disk(checkpoint) and _FILES not in own:
        # Spark's choice calls the system's `readlink` before each renaming: sixty processes a
        # micro-batch, a second of CPU time. Other file systems need its atomic renaming.
        spark.conf.set(_FILES, class_among(spark, FILES_ON_DISK))
    includes = sent_with_tasks(spark)
    includes[:] = without_jars(includes)
    forget_jars()
    log4j = java_of(spark).org.apache.logging.log4j
    for logger, level in _LEVELS.items():
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.toLevel(level))
    return spark


def _begin(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """Return the session; settings with which Java or Spark cannot begin are a sentence.

    `settings` are the job's own.
    """
    try:
        spark = builder.getOrCreate()
        # The session reads the settings of SQL at the first question to it.
        spark.conf.get(_TIME_ZONE)
    except PySparkRuntimeError as failure:
        if failure.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SettingsInvalid(_JAVA_ENDED) from failure
    except (ConnectionError, Py4JNetworkError) as failure:
        raise SettingsInvalid(_JAVA_ENDED) from failure
    except Py4JJavaError as failure:
        raise _refused(str(failure.java_exception.toString()), settings) from failure
    except IllegalArgumentException as failure:
        # Its own words may name only the class that makes the state; its causes stand behind them.
        cause = str(failure).rpartition("Caused by: ")[2].partition("\n")[0]
        raise _refused(cause, settings) from failure
    return spark


def _refused(said: str, settings: Mapping[str, str]) -> SettingsInvalid:
    """Return a sentence with what a Java exception says, and which settings it can mean."""
    said = _PACKAGE.sub("", " ".join(said.split()))
    sentence = f"Spark does not begin with the settings of this job: {said}"
    if settings and not any(setting in said for setting in settings):
        names = ", ".join(f"`{setting}`" for setting in settings)
        sentence = f"{sentence.rstrip('.')}. Spark names no setting; those of the job are {names}"
    return SettingsInvalid(sentence)


def beside(
    ours: Mapping[str, str], submitted: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a session: a job's own override ours, and lists have both.

    The extensions and Spark's own catalog that spark-submit was given stay as well.
    """
    theirs = {name: submitted[name] for name in (_EXTENSIONS, _CATALOG) if name in submitted}
    theirs |= settings
    if submitted.get(_DEPLOY_MODE) == "cluster":
        # They counted when the driver was sent here, and name files of the machine that sent it.
        theirs = {name: value for name, value in theirs.items() if not is_for_submit(name)}
    found = {**ours, **theirs}
    for name in (PACKAGES, _EXTENSIONS):
        both = f"{theirs.get(name, '')},{ours.get(name, '')}".split(",")
        if name in found:
            found[name] = ",".join(dict.fromkeys(filter(None, both)))
    return found


def is_for_submit(setting: str) -> bool:
    """Return whether spark-submit must be told a setting, before the driver reads a job's file."""
    return setting.startswith(_FOR_SUBMIT)


def submitted() -> Mapping[str, str]:
    """Return the settings that spark-submit has for this process; none without it."""
    if _GATEWAY not in os.environ:
        return {}
    begin_java()
    return dict(SparkConf().getAll())


def _is_on_disk(checkpoint: str) -> bool:
    """Return whether a path is on the machine's own disk, whatever Hadoop is set up for."""
    scheme = urlsplit(checkpoint).scheme
    return scheme == "file" or (not scheme and "HADOOP_CONF_DIR" not in os.environ)
