"""The options by which a job runs, whatever the job does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headrace.spark_jobs.jobs.filled import Period
from headrace.spark_jobs.observe.metrics import Address
from headrace.spark_jobs.queries.described import Query

LOCAL = "local[*]"


class DeployMode(StrEnum):
    """Which machine runs the driver."""

    CLIENT = "client"
    """This one."""
    CLUSTER = "cluster"
    """One of the cluster's."""


@dataclass
class How:
    """How a job is run, or the queries of a file."""

    master: str | None = LOCAL
    """Where tasks run; without it, where spark-submit was told."""
    deploy_mode: DeployMode = DeployMode.CLIENT
    once: bool = False
    backfill: Period | None = None
    """The period that is joined at once, where the job is not run."""
    metrics_at: Address | None = None
    log: Path | None = None
    dry_run: bool = False
    """Only check that they could run."""
    queries: int = 0
    """The number of queries so far."""
    only_taken: list[Query] | None = None
    """Of a test, the queries of the file, which it does not run."""

    @property
    def is_here(self) -> bool:
        """Whether tasks run in processes of this machine that the job starts itself."""
        return self.master is not None and self.master.startswith("local")
