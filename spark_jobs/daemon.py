"""`python -m spark_jobs.daemon`: what Spark starts once, and forks its Python workers from.

It is Spark's own, and has imported before it forks what every worker needs.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

from spark_jobs.worker import settle

NEEDED = (
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "spark_jobs.operators.processor",
    "spark_jobs.write.transaction",
)

if __name__ == "__main__":
    for module in NEEDED:
        importlib.import_module(module)
    settle()
    manager()  # type: ignore[no-untyped-call]
