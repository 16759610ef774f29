"""The job that reads the week, and its driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.run import run_as
from headrace.spark_jobs.observe.metrics import Address
from tests.bench.releasing.fill import SIDES, topic_of


def write_job(folder: Path, servers: str, records_per_batch: int | None) -> Path:
    """The file of README's job over the week."""
    job: dict[str, Any] = {
        "job": "orders-prices",
        "name": "releasing",
        "servers": servers,
        "checkpoint": str(folder / "checkpoint"),
        "inputs": {side: {"topic": topic_of(side), "pipeline": side} for side in SIDES},
        "retention": "1d",
        "tasks": 4,
        "shuffle-partitions": 2,
        "sink": {"kafka": {"topic": "shop.priced", "partitions": 2}},
        "spark": {"spark.ui.enabled": "false", "spark.driver.memory": "2g"},
    }
    if records_per_batch is not None:
        job["records-per-batch"] = records_per_batch
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


def run_it(job: Path, port: int) -> None:
    """The life of the job's driver; all that it starts is of one session, and it says which."""
    job.with_name("session").write_text(f"{os.getsid(0)}")
    run_as(*load_job(job), How("local[2]", metrics_at=Address(port)))
