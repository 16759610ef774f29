"""`python -m headrace.spark_jobs.daemon`: Spark starts it once, and forks Python workers from it.

It is Spark's own, and has imported before it forks what every worker needs.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

from headrace.spark_jobs.worker import settle

NEEDED = (
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "headrace.spark_jobs.operators.processor",
    "headrace.spark_jobs.write.transaction",
)

if __name__ == "__main__":
    for module in NEEDED:
        importlib.import_module(module)
    settle()
    manager()  # type: ignore[no-untyped-call]
