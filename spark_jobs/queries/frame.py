"""Turn a query into a DataFrame of the user's own session: a streaming one, or one at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs.jobs.access import access_of
from headrace.spark_jobs.jobs.bulk import read_range
from headrace.spark_jobs.jobs.hot_keys import spread_of
from headrace.spark_jobs.jobs.run import Job, read_inputs
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.read.decode import readable_alone
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.read.written_by import CleanedTopic
from headrace.spark_jobs.session import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.queries.described import Query

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def dataframe(
    query: Query, spark: SparkSession, *, servers: str, kafka: Mapping[str, Any], tasks: int
) -> DataFrame:
    """Return the columns of a query's rows, as they leave."""
    if spark.conf.get(_PROVIDER, None) != SETTINGS[_PROVIDER]:
        message = (
            f"a query keeps its state in RocksDB, and this session does not; set `{_PROVIDER}` to"
            f" {SETTINGS[_PROVIDER]}, or open the session by `headrace.spark.open_session`"
        )
        raise SettingsInvalid(message)
    job = QueryJob(query)
    document = {
        **job.described(),
        "name": "dataframe",
        "servers": servers,
        "checkpoint": "of-the-query-that-reads-it",
        "sink": {"console": {}},
        "tasks": tasks,
        "kafka": access_of(kafka),
    }
    config = job.Config.model_validate(document)
    inputs = read_inputs(spark, cast("Job", job), config)
    return job.columns(job.results(inputs, spread_of(config)))


def backfill(
    query: Query, spark: SparkSession, *, servers: str, kafka: Mapping[str, Any]
) -> DataFrame:
    """Return the columns of a query's rows over all records that are there now."""
    job = QueryJob(query)
    brokers = Source(servers, access_of(kafka).for_reader())
    topics = [CleanedTopic(n, source.topic) for n, source in enumerate(job.sources.values())]
    frames = [
        readable_alone(read_range(spark, brokers, [topic]), topic.input, as_format)
        for topic, as_format in zip(topics, job.VALUES.values(), strict=True)
    ]
    return job.columns(job.in_bulk(frames))
