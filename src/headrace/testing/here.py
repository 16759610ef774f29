"""The fixture of a test: it finds pipelines beside the test, and checks that no record is lost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import overload

from headrace.spark_jobs.queries.described import Query
from headrace.testing.invariants import check_conservation
from headrace.testing.query_result import QueryResult
from headrace.testing.running import AnyPipeline, Input, Result, load_query, run
from headrace.testing.scenarios import check


class Here:
    """Offers `run`, `check` and `query`, with files beside the test."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the pipelines."""
        self._folder = folder

    def query(self, name: str) -> Query:
        """Load the query of a job's file, or `module:name` of one in Python."""
        return load_query(name, self._folder)

    @overload
    def run(
        self,
        pipeline: Query,
        records: str | Iterable[Input],
        *,
        partitions: int | None = None,
        seed: int | None = None,
    ) -> QueryResult: ...
    @overload
    def run(
        self,
        pipeline: AnyPipeline,
        records: str | Iterable[Input],
        *,
        partitions: int | None = None,
        seed: int | None = None,
    ) -> Result: ...
    def run(
        self,
        pipeline: AnyPipeline | Query,
        records: str | Iterable[Input],
        *,
        partitions: int | None = None,
        seed: int | None = None,
    ) -> Result | QueryResult:
        """Run records through, and check that none was lost."""
        if isinstance(pipeline, Query):
            return run(pipeline, records, partitions=partitions, seed=seed)
        result = run(self._found(pipeline), records, partitions=partitions, seed=seed)
        check_conservation(result)
        return result

    @overload
    def check(
        self, pipeline: Query, table: str, *, partitions: int | None = None
    ) -> QueryResult: ...
    @overload
    def check(
        self, pipeline: AnyPipeline, table: str, *, partitions: int | None = None
    ) -> Result: ...
    def check(
        self, pipeline: AnyPipeline | Query, table: str, *, partitions: int | None = None
    ) -> Result | QueryResult:
        """Check a table, and that no record was lost."""
        if isinstance(pipeline, Query):
            return check(pipeline, table, partitions=partitions)
        result = check(self._found(pipeline), table, partitions=partitions)
        check_conservation(result)
        return result

    def _found(self, pipeline: AnyPipeline) -> AnyPipeline:
        if isinstance(pipeline, Path):
            return self._folder / pipeline
        is_name = isinstance(pipeline, str) and pipeline.endswith((".yaml", ".yml"))
        return self._folder / str(pipeline) if is_name else pipeline
