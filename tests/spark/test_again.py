"""A query is started again when a Python process that it needs did not start, and not for ever."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.contracts.errors import WorkerStalled
from headrace.spark_jobs.jobs.again import ATTEMPTS, Attempts, did_not_start, has_ended, running
from headrace.spark_jobs.jobs.stamp import Stamp
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.versioned.tables import Versioned
from tests.spark.frames import stream_rows, write_rows
from tests.spark.pointing import LEFT, RIGHT, row_of

SAID = (
    "[STREAM_FAILED] Query [id = 0, runId = 1] terminated with exception: {}\n=== Streaming Query"
)
NOT_STARTED = SAID.format("Python worker failed to connect back. SQLSTATE: XXKST")
OTHERS = [
    SAID.format("TransformWithStateInPySpark driver worker exited unexpectedly (crashed)"),
    SAID.format("Job aborted due to stage failure: Python worker exited unexpectedly (crashed)"),
    SAID.format("java.net.SocketTimeoutException: Read timed out"),
]
NEVER = "an attempt more than the last one"


class Ended:
    """A query that has ended."""

    isActive = False  # noqa: N815 - as Spark calls it

    def __init__(self, said: str | None) -> None:
        """Take what Spark says of its failure, None if it did not fail."""
        self._failure = None if said is None else StreamingQueryException(said)

    def exception(self) -> StreamingQueryException | None:
        """Return its failure."""
        return self._failure

    def awaitTermination(self, _within_s: int | None = None) -> None:  # noqa: N802
        """Raise its failure."""
        if self._failure is not None:
            raise self._failure


class Runs(Ended):
    """A query that goes on."""

    isActive = True  # noqa: N815

    def awaitTermination(self, _within_s: int | None = None) -> bool:  # type: ignore[override]  # noqa: N802
        """Return that it has not ended."""
        return False


class Output:
    """An output that says whether it is open."""

    def __init__(self) -> None:
        """Open it."""
        self.is_open = True

    def close(self) -> None:
        """Close it."""
        assert self.is_open
        self.is_open = False


class Life:
    """A query of which each start ends in a way that a test says."""

    def __init__(self, *ends: Ended, finished: Callable[[], int] = lambda: -1) -> None:
        """Take one query for each start."""
        self._ends = iter(ends)
        self.outputs: list[Output] = []
        self.queries = running(Attempts("priced", finished), self._make, self._start)

    def _make(self) -> Output:
        self.outputs.append(Output())
        return self.outputs[-1]

    def _start(self, _output: Output) -> StreamingQuery:
        query = next(self._ends, None)
        assert query is not None, NEVER
        return query  # type: ignore[return-value]

    def run(self) -> None:
        """Wait for each start, as a caller does."""
        for query in self.queries:
            assert has_ended(query)


def not_started(times: int) -> Iterator[Ended]:
    return (Ended(NOT_STARTED) for _ in range(times))


def test_a_query_whose_process_did_not_start_is_started_again_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life = Life(*not_started(ATTEMPTS - 1), Ended(None))
    with caplog.at_level(logging.WARNING):
        life.run()
    assert len(life.outputs) == ATTEMPTS
    assert not any(output.is_open for output in life.outputs)
    assert caplog.messages == [
        "priced: its Python process did not connect to Spark, which waits 10 s for it"
        f" ({number} of 5 times in a row); the query is started again from its checkpoint, and"
        " nothing is lost"
        for number in range(1, ATTEMPTS)
    ]


def test_a_process_that_never_starts_ends_in_a_sentence() -> None:
    life = Life(*not_started(ATTEMPTS))
    with pytest.raises(WorkerStalled) as raised:
        life.run()
    assert str(raised.value) == (
        "the Python process of `priced` did not connect to Spark, which waits 10 s for it, 5 times"
        " in a row. If that Python fails, Spark's log says how; if not, the machine is too busy:"
        " give the job more CPU, or start fewer jobs at a time. Then start it again, and it goes on"
        " where it ended"
    )
    assert not any(output.is_open for output in life.outputs)


def test_a_micro_batch_that_is_through_ends_the_row_of_failures() -> None:
    finished = iter([-1, *[-1] * (ATTEMPTS - 1), *[0] * (ATTEMPTS - 1)])
    life = Life(*not_started(2 * ATTEMPTS - 2), Ended(None), finished=lambda: next(finished))
    life.run()
    assert len(life.outputs) == 2 * ATTEMPTS - 1


@pytest.mark.parametrize("said", OTHERS)
def test_another_failure_is_raised_and_nothing_is_started_again(said: str) -> None:
    life = Life(Ended(said))
    with pytest.raises(StreamingQueryException):
        life.run()


def test_a_query_that_goes_on_is_no_failure() -> None:
    life = Life(Runs(None))
    (query,) = life.queries
    assert not has_ended(query, 1)
    assert life.outputs[0].is_open


def test_no_failure_is_no_process_that_did_not_start() -> None:
    assert not did_not_start(None)


HANGS_UP = f"""\
#!{sys.executable} -S
import os, socket
socket.create_connection(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"]))).close()
"""
"""A Python that Spark takes, at once, for one that did not connect; for silence it waits 10 s."""


def test_spark_starts_a_query_again_whose_process_hung_up(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context, folder = spark.sparkContext, tmp_path / "checkpoint"
    working = context.pythonExec
    hangs_up = tmp_path / "python"
    hangs_up.write_text(HANGS_UP)
    hangs_up.chmod(0o755)
    rows = [
        row_of(LEFT, 0, 1, "k", {"price": 5}),
        row_of(RIGHT, 0, 2, "k", {"id": 1}),
        # Behind its grace the one before it is released.
        row_of(RIGHT, 1, 50, "k", {"id": 2}),
    ]
    records = stream_rows(spark, write_rows(tmp_path / "in", rows))
    prices = Topic("prices", LEFT, Versioned(60_000))
    priced = LookUp("priced", prices, stream=RIGHT, join="left", grace_ms=10)
    pythons = iter([str(hangs_up), working])
    joined: list[tuple[int, int]] = []

    def write(frame: DataFrame, batch: int) -> None:
        joined.append((batch, frame.where("verdict = 'joined'").count()))

    def start(_output: Output) -> StreamingQuery:
        monkeypatch.setattr(context, "pythonExec", next(pythons))
        writer = operate(priced, records, Spread(tasks=1)).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(folder))
        return writer.trigger(availableNow=True).start()

    attempts = Attempts("priced", Stamp(spark, str(folder)).finished)
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for query in running(attempts, Output, start):
            assert has_ended(query)
    assert len([said for said in caplog.messages if said.startswith("priced: ")]) == 1
    assert next(pythons, None) is None
    assert joined[0] == (0, 1)
