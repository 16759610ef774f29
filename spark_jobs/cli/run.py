"""A job from its first micro-batch to its end, on the session that this process opens."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from threading import Event

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.cli.failure import error_of
from spark_jobs.cli.log import started_into
from spark_jobs.connectors import CONNECTORS
from spark_jobs.jobs.config import JobConfig
from spark_jobs.jobs.run import Job, start
from spark_jobs.observe.listener import Listener
from spark_jobs.observe.metrics import Metrics
from spark_jobs.session import open_session

_LOOK_EVERY_S = 1


def run_job(
    job: Job,
    config: JobConfig,
    *,
    master: str | None,
    once: bool,
    metrics_port: int | None,
    log: Path | None = None,
) -> None:
    """Run a job until it is told to stop, or `once` has read everything.

    Without a master the session is spark-submit's, which has resolved the connectors. Without a
    file for it, Spark's log goes where ours goes.
    """
    metrics = Metrics(config.name)
    with nullcontext() if log is None else started_into(log):
        spark = open_session(
            config.name,
            master=master,
            shuffle_partitions=config.shuffle_partitions,
            settings=config.spark,
            checkpoint=config.checkpoint,
            connectors=() if master is None else CONNECTORS,
        )
    spark.streams.addListener(Listener(metrics))
    if metrics_port is not None:
        metrics.serve(metrics_port)
    try:
        _wait(start(spark, job, config, once=once, tell=metrics.tell))
    except (PySparkException, Py4JJavaError) as failure:
        ours = error_of(failure, config.servers)
        if ours is None:
            raise
        raise ours from failure
    finally:
        spark.stop()


def _wait(query: StreamingQuery) -> None:
    """Until it ends, or is told to; what was not committed is run again at the next start."""
    told = Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda _signal, _frame: told.set())
    # Nothing but the flag: the call to Spark that is under way cannot be broken into.
    while not query.awaitTermination(_LOOK_EVERY_S):
        if told.is_set():
            query.stop()
