"""`python -m headrace.spark_jobs.daemon`: Spark starts it once, and forks Python workers from it.

It is Spark's own daemon, but imports the modules of every worker before it forks.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

from headrace.spark_jobs.worker import settle

NEEDED = (
    "pyarrow.acero",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "headrace.spark_jobs.jobs.run",
    "headrace.spark_jobs.operators.processor",
    "headrace.spark_jobs.operators.tabled",
    "headrace.spark_jobs.write.task_files",
    "headrace.spark_jobs.write.transaction",
)
"""All that a task of a shipped job imports. Workers share it, and Spark's collector skips it, which
runs behind every task."""

if __name__ == "__main__":
    for module in NEEDED:
        importlib.import_module(module)
    settle()
    manager()  # type: ignore[no-untyped-call]
