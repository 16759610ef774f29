"""Run a job from its first micro-batch to its end, on a session that this process opens."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.cli.failure import error_of
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.log import started_into
from headrace.spark_jobs.connectors import connectors_for
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.jobs.again import has_ended
from headrace.spark_jobs.jobs.backfill import backfill
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.jobs.filled import Plan
from headrace.spark_jobs.jobs.run import Job, awaited_by, place_of, prepare, queries
from headrace.spark_jobs.observe.listener import Listener
from headrace.spark_jobs.observe.metrics import Metrics
from headrace.spark_jobs.observe.waits import time_text
from headrace.spark_jobs.session import open_session

_LOOK_EVERY_S = 1
_log = logging.getLogger(__name__)


def run_as(job: Job, config: JobConfig, how: How) -> None:
    """Run a job until it is told to stop, or until `once` has read everything; or its backfill.

    Without a master the job uses the session of spark-submit, which has resolved the connectors.
    Without a log file, Spark logs to where this process does.
    """
    if how.backfill is not None:
        with _ready(job, config, how) as spark:
            plan = backfill(spark, job, config, how.backfill)
        _say_filled(config, plan)
        return
    metrics = Metrics(config.name, time.time)
    with metrics.served(how.metrics_at), _ready(job, config, how) as spark:
        spark.streams.addListener(Listener(metrics))
        stops = _stop_asked_for()
        # With `once`, a missing topic gets a sentence; without, the job waits for it.
        if how.once or _wait_for_sidecars(spark, config, stops):
            for query in queries(spark, job, config, once=how.once, note=metrics.note):
                _wait(query, stops, metrics)
                if stops.is_set():
                    break


@contextmanager
def _ready(job: Job, config: JobConfig, how: How) -> Iterator[SparkSession]:
    """Open a session on which a job can run, and stop it whatever happens."""
    spark = _session(config, how.master, how.log)
    try:
        refuse_checkpoint_here(spark, config.checkpoint)
        place = place_of(config)
        if place is not None:
            place.check(spark)
        prepare(spark, job, config)
        yield spark
    except (PySparkException, Py4JJavaError) as failure:
        ours = error_of(failure, config.servers)
        if ours is None:
            raise
        raise ours from failure
    finally:
        spark.stop()


def _session(config: JobConfig, master: str | None, log: Path | None) -> SparkSession:
    with nullcontext() if log is None else started_into(log):
        is_iceberg = config.sink.iceberg is not None
        return open_session(
            config.name,
            master=master,
            shuffle_partitions=config.shuffle_partitions,
            settings=config.spark,
            checkpoint=config.checkpoint,
            connectors=() if master is None else connectors_for(iceberg=is_iceberg),
        )


def _say_filled(config: JobConfig, plan: Plan) -> None:
    begin = "its first record" if plan.from_ms is None else time_text(plan.from_ms)
    Console(highlight=False).print(
        f"{config.name}: the records of `{plan.stream}` from {begin} to {time_text(plan.to_ms)} are"
        " joined; start the job, and it goes on from there",
        soft_wrap=True,
    )


def refuse_checkpoint_here(spark: SparkSession, checkpoint: str) -> None:
    """Refuse a checkpoint on this machine's disk when tasks run on other machines."""
    master = str(spark.sparkContext.master)
    # A user who writes a scheme means a volume that all machines mount.
    if master.startswith("local") or urlsplit(checkpoint).scheme:
        return
    if Folder(spark, checkpoint).is_on_this_machine:
        message = (
            f"`{checkpoint}` is a folder of this machine, and tasks run on those of {master}; name"
            " one that all of them share by its URL, such as hdfs://... or s3a://..., or"
            " file:///... where each of them has it mounted"
        )
        raise JobInvalid(message)


def _stop_asked_for() -> Event:
    """Return an event that SIGTERM and SIGINT set."""
    stops = Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda _signal, _frame: stops.set())
    return stops


def _wait_for_sidecars(spark: SparkSession, config: JobConfig, stops: Event) -> bool:
    """Wait until the sidecars of all inputs write; return False if stops to stop before."""
    said = None
    while (sentence := awaited_by(spark, config)) is not None:
        if sentence != said:
            _log.warning("%s: %s", config.name, sentence)
            said = sentence
        if stops.wait(_LOOK_EVERY_S):
            return False
    return True


def _wait(query: StreamingQuery, stops: Event, metrics: Metrics) -> None:
    """Wait until the query ends or is asked to stop; the next start repeats uncommitted work."""
    # The handler only sets a flag: it cannot interrupt the call to Spark that is under way.
    while not has_ended(query, _LOOK_EVERY_S):
        metrics.say_who_is_waited_for()
        if stops.is_set() and not _stopped(query):
            return


def _stopped(query: StreamingQuery) -> bool:
    """Stop a query, and return whether it ends; one that waits for Kafka is left, as by a kill."""
    try:
        query.stop()
    except Py4JJavaError as failure:
        if "java.util.concurrent.TimeoutException" not in str(failure):
            raise
        _log.warning(
            "%s: the micro-batch under way does not end, for something that it needs does not"
            " answer; it is left, and the next start repeats it",
            query.name,
        )
        return False
    return True
