"""Have a commit to an Iceberg table say more in its snapshot's summary.

Options of a write would do for an append, and a merge takes none. Iceberg adds to either what it
finds in a variable of the thread that commits, and sets that variable around a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs.seams import called_by_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession


class _Called:
    """Calls a function of Python from Java, and keeps what it raises, which Java would wrap."""

    class Java:
        """Java takes it for one of these."""

        implements = ("java.util.concurrent.Callable",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.raised: BaseException | None = None

    def call(self) -> None:
        """Call the function."""
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 (it is raised again, on the other side)
            self.raised = error


def committed_with(
    spark: SparkSession, noted: Mapping[str, str], commit: Callable[[], None]
) -> None:
    """Call a function whose commits to tables of Iceberg have this in their snapshots."""
    gateway = called_by_java(spark)
    metadata = gateway.jvm.org.apache.iceberg.spark.CommitMetadata

    def commit_noted() -> None:
        # A commit in a thread of its own would have no marker, and be written twice.
        if not metadata.commitProperties():
            message = (
                "Python and Java do not share their threads here, which the Iceberg sink needs;"
                " remove `PYSPARK_PIN_THREAD` from the environment"
            )
            raise SettingsInvalid(message)
        commit()

    properties = gateway.jvm.java.util.HashMap()
    for name, value in noted.items():
        properties[name] = value
    called = _Called(commit_noted)
    raised = gateway.jvm.java.lang.Class.forName("java.lang.RuntimeException")
    metadata.withCommitProperties(properties, called, raised)
    if called.raised is not None:
        raise called.raised
