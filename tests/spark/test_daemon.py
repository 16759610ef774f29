"""Python workers have what they need when they are forked."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_a_worker_imports_nothing_that_all_of_them_need(spark: SparkSession) -> None:
    (row,) = spark.range(1).repartition(1).mapInArrow(_state_of_worker, _SCHEMA).collect()
    assert row.imported
    assert row.frozen > 0


_SCHEMA = "imported BOOLEAN, frozen BIGINT"


def _state_of_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        # No import of this module would bring it.
        state = {
            "imported": "headrace.spark_jobs.write.transaction" in sys.modules,
            "frozen": gc.get_freeze_count(),
        }
        yield pa.RecordBatch.from_pylist([state])
