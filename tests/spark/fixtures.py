"""One small session of Spark for all tests of a process.

Every run of pytest loads this module, also where Spark is not installed, so it imports Spark when a
test asks for the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """The session of this process; one that a test's failure left dead is replaced."""

    def __init__(self) -> None:
        """Start nothing before a test asks for it."""
        self._spark: SparkSession | None = None

    def open(self) -> SparkSession:
        """Return the session that lives, or start one."""
        if self._spark is None or self._is_stopped(self._spark):
            opened: SparkSession = import_module("tests.spark.frames").small_session("tests")
            self._spark = opened
        return self._spark

    def close(self) -> None:
        """Stop it, if a test asked for it."""
        if self._spark is not None and not self._is_stopped(self._spark):
            self._spark.stop()

    @staticmethod
    def _is_stopped(spark: SparkSession) -> bool:
        context = spark.sparkContext._jsc  # noqa: SLF001 - None once it was stopped from Python
        return context is None or bool(context.sc().isStopped())


@pytest.fixture(scope="session")
def spark_of_process() -> Iterator[Session]:
    """The session that this process's tests share."""
    session = Session()
    yield session
    session.close()


@pytest.fixture
def spark(spark_of_process: Session) -> Iterator[SparkSession]:
    """A small session without Kafka or Delta, in which nothing else runs."""
    session = spark_of_process.open()
    yield session
    for query in session.streams.active:
        query.stop()
