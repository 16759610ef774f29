"""Every private name of Spark, PySpark and Delta that we lean on, and nothing else.

Other modules use what is public, and take the rest from here alone; `daemon.py` starts Spark's own
daemon, and `Listener` overrides a property of PySpark's. No version is compared here. Where the
versions that we run on differ, all names stand here, and a session looks for the one that it has.
`tests/spark/test_seams.py` fails loudly when another version of Spark moves one of these.
"""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.streaming.listener import JStreamingQueryListener
from pyspark.sql.streaming.proto import StateMessage_pb2 as state_messages

from headrace.contracts.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["JStreamingQueryListener", "state_messages"]

_EXECUTION = "org.apache.spark.sql.execution"
FILES_ON_DISK = (
    f"{_EXECUTION}.streaming.FileSystemBasedCheckpointFileManager",
    f"{_EXECUTION}.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)
"""The class that keeps the files of a checkpoint by the calls of any file system."""
STATE_SERVERS = (
    f"{_EXECUTION}.python.streaming.TransformWithStateInPandasStateServer",
    f"{_EXECUTION}.python.streaming.TransformWithStateInPySparkStateServer",
)
"""The class, and so the logger, that answers a worker's calls of state."""
MICRO_BATCHES = (
    f"{_EXECUTION}.streaming.MicroBatchExecution",
    f"{_EXECUTION}.streaming.runtime.MicroBatchExecution",
)
"""The class, and so the logger, that runs a query."""
REAL_TIME_MODE = "org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode"
"""The interface of a source that came together with a report of a source's lag that may end a query
(SPARK-57438)."""
SCANS_IN_COLUMNS = not hasattr(state_messages, "StateResponseWithMapKeysOrValues")
"""Whether a scan of a map of state gets columns; Spark 4.1 pickles its rows, as it does one."""
KAFKA_STREAM = "KafkaMicroBatchStream"
"""The class of a source that reads Kafka."""
ROW_FUNCTIONS = {
    "_parse_datatype_json_string": lambda _schema: None,
    "_create_row_inbound_converter": lambda _schema: lambda *fields: fields,
}
"""The functions of PySpark that a pickled row of Java names, as they are for its fields alone."""


def java_of(spark: SparkSession) -> Any:
    """Return the Java of a session: the classes that Spark loaded are its attributes."""
    return spark.sparkContext._jvm


def java_session_of(spark: SparkSession) -> Any:
    """Return Java's own session."""
    return spark._jsparkSession


def gateway_of(spark: SparkSession) -> Any:
    """Return the connection to Java, which has Java's process."""
    return spark.sparkContext._gateway


def called_by_java(spark: SparkSession) -> Any:
    """Return the connection to Java, by which Java calls functions of Python from now on."""
    gateway = gateway_of(spark)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return gateway


def begin_java() -> None:
    """Connect to the Java that spark-submit runs, before there is a session."""
    SparkContext._ensure_initialized()


def sent_with_tasks(spark: SparkSession) -> list[str]:
    """Return the names, to be changed in place, that each task's worker puts on its path."""
    return spark.sparkContext._python_includes or []


def java_listener(called: JStreamingQueryListener) -> Any:
    """Return the listener that Java calls, and that passes everything on to one of Python."""
    java: Any = SparkContext._jvm
    return java.PythonStreamingQueryListenerWrapper(called)


def ask_for_ends(spark: SparkSession, query_id: str) -> None:
    """Let the Kafka sources of an active query ask their brokers how far the topics are now."""
    execution = java_session_of(spark).streams().get(query_id).streamingQuery()
    sources = execution.sources().iterator()
    while sources.hasNext():
        source = sources.next()
        if source.getClass().getSimpleName() == KAFKA_STREAM:
            source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())


def begin_state_registry(spark: SparkSession) -> None:
    """Begin Spark's registry of open state stores, which comes with a session's list of queries.

    Spark 4.1 tells it of each snapshot that a reader of state loads, and fails where it is missing.
    """
    java_session_of(spark).streams()


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether a frame has the same rows each time that it is computed."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic())


def state_socket_of(state: MapState) -> tuple[Any, str]:
    """Return the socket by which a map of state calls Java, and the map's name there."""
    return state._mapStateClient._stateful_processor_api_client.sockfile, state._stateName


def log_of_folder(spark: SparkSession, folder: str) -> Any:
    """Return the log of the Delta table in a folder, which may have no entry yet."""
    log = java_of(spark).org.apache.spark.sql.delta.DeltaLog
    return log.forTable(java_session_of(spark), folder)


def log_of_table(table: Any) -> Any:
    """Return the log of a table that Delta's own object describes."""
    return table._jdt.deltaLog()


def last_write_of(log: Any, writer: str) -> int | None:
    """Return the number of a writer's last write in a Delta log, None if it wrote nothing."""
    last = log.unsafeVolatileSnapshot().transactions().get(writer)
    return int(last.get()) if last.isDefined() else None


def folder_of_log(log: Any) -> str:
    """Return the folder of a Delta table, as a URL."""
    return str(log.dataPath())


class DeltaCommit:
    """A commit to a Delta table on its way, which Delta compares with those that come between."""

    def __init__(self, spark: SparkSession, log: Any) -> None:
        """Begin behind the last commit of a table."""
        self._java = java_of(spark)
        self._transaction = log.startTransaction()

    @property
    def version_before(self) -> int:
        """The table's version behind that commit."""
        return int(self._transaction.readVersion())

    def described(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the table asks of writers, and what it is, in the protocol's words."""
        protocol = json.loads(self._transaction.protocol().json())["protocol"]
        return protocol, json.loads(self._transaction.metadata().json())["metaData"]

    def last_number_of(self, writer: str) -> int:
        """Return the number of a writer's last commit, below zero without any; depend on it.

        Delta reads all of the table's state for it.
        """
        return int(self._transaction.txnVersion(writer))

    def depend_on(self, writer: str) -> None:
        """Have Delta refuse this commit if another one brings a number of the writer before it."""
        self._transaction.readTxn().addOne(writer)

    def append(self, writer: str, number: int, files: Sequence[Mapping[str, Any]]) -> int:
        """Commit files, as a stream does, with the writer's number; return the table's version.

        A file is described in the words of Delta's protocol.
        """
        scala, delta = self._java.scala.Option, self._java.org.apache.spark.sql.delta
        added = [delta.actions.Action.fromJson(json.dumps({"add": file})) for file in files]
        now_ms = self._java.System.currentTimeMillis()
        self._transaction.updateSetTransaction(writer, number, scala.apply(now_ms))
        mode = self._java.org.apache.spark.sql.streaming.OutputMode.Append()
        update = getattr(delta, "DeltaOperations$StreamingUpdate")(
            mode, writer, number, scala.empty()
        )
        return int(self._transaction.commit(self._java.PythonUtils.toSeq(added), update))


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the Java of a session finds a class."""
    return not isinstance(attrgetter(name)(java_of(spark)), JavaPackage)


def class_among(spark: SparkSession, names: Sequence[str]) -> str:
    """Return the first of these classes that the Java of a session finds."""
    for name in names:
        if has_class(spark, name):
            return name
    message = (
        f"Spark {spark.version} has no class {' or '.join(names)}, which headrace leans on; use a"
        " version of Spark that headrace was tried on, as docs/spark.md names them"
    )
    raise SettingsInvalid(message)
