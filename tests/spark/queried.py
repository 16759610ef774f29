"""Runs queries by columns in real queries of Spark, over rows in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import headrace as hr
from headrace.contracts.record import Record
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.run import format_of
from headrace.spark_jobs.operators.frames import InputProgress
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.shapes import CHANGED, FIELDS
from headrace.spark_jobs.write.output import columns
from tests.spark.frames import Row, apart, run_to_end, stream_rows, write_rows

Leaves = list[tuple[str, str | None, Any]]
"""Verdict, key and value of what leaves."""


class Ran:
    """The rows of a query in the order of their tasks, and as a table would have them."""

    def __init__(self) -> None:
        self.rows: Leaves = []
        self.records: list[dict[str, Any]] = []
        self.table: list[dict[str, Any]] = []
        """The rows as a table has them."""
        self.parsed: list[dict[str, Any]] = []
        """The same, parsed from their JSON."""

    def of(self, verdict: str) -> list[tuple[str | None, Any]]:
        """The keys and values of one verdict, sorted."""
        found = [(key, value) for said, key, value in self.rows if said == verdict]
        return sorted(found, key=str)

    def last(self) -> dict[str | None, Any]:
        """The last value of each key of a table."""
        return {key: value for said, key, value in self.rows if said == CHANGED}


def run_in_spark(
    spark: SparkSession, folder: Path, query: Query, rows: list[Row], *, makes_tables: bool = False
) -> Ran:
    """Run a query over rows; its inputs are numbered as it names its sources."""
    job, config = described(
        query, name="it", to=hr.console(), servers="here:1", checkpoint="unused", tasks=2
    )
    names = list(job.sources)
    formats = {number: format_of(job, name) for number, name in enumerate(names)}  # type: ignore[arg-type]
    read = stream_rows(spark, write_rows(folder / "in", rows))
    frames = apart(read, len(names))
    progress = InputProgress(None, dict.fromkeys(range(len(names)), 0))
    results = job.transform(Inputs(names, frames, formats, progress, {}), config)
    schema = job.Row if makes_tables else None
    return _collected(results, schema, folder / "checkpoint")


def _collected(results: DataFrame, schema: StructType | None, checkpoint: Path) -> Ran:
    ran = Ran()

    def take(frame: DataFrame, _batch: int) -> None:
        frame.persist()
        rows = frame.where("verdict NOT IN ('count', 'said', 'lowest')")
        for row in rows.orderBy("task", "sequence").collect():
            value = None if row["value"] is None else text(row["value"])
            ran.rows.append((row["verdict"], text(row["key"]), value))
            ran.records.append(row.asDict(recursive=True))
        if schema is not None:
            made = frame.where("verdict IN ('joined', 'changed')")
            for table, form in ((ran.table, made), (ran.parsed, made.drop(FIELDS))):
                table += [row.asDict(recursive=True) for row in columns(form, schema).collect()]
        frame.unpersist()

    run_to_end(results.writeStream.foreachBatch(take), checkpoint)
    return ran


def text(found: bytes) -> Any:
    """Read bytes as JSON if they are JSON, else as text."""
    try:
        return json.loads(found)
    except ValueError:
        return bytes(found).decode(errors="surrogateescape")


def said(side: int, *records: tuple[str, int, object]) -> list[Row]:
    r"""Records of an input in the order of their offsets; text is taken as it is.

    A surrogate in a key, such as `\udcff`, is a byte that is no text.
    """
    rows = []
    for offset, (key, at_ms, value) in enumerate(records):
        told = value if isinstance(value, str) or value is None else json.dumps(value)
        raw = None if told is None else told.encode()
        raw_key = key.encode(errors="surrogateescape")
        rows.append((side, Record(raw_key, raw, at_ms, (("h", b"1"),), str(side), 0, offset)))
    return rows
