"""Bundle the results of a topology in the task that makes them, for a sink that takes bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.spark_jobs.operators.columns import columns_of, wrapped
from headrace.spark_jobs.operators.results import BYTES_MAX
from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.write.bundled import packed
from headrace.spark_jobs.write.gathered import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd


class Leaving(NamedTuple):
    """The way of results to their sink."""

    def bundled(self, results: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Bundle results in their order."""
        for rows in joined(map(columns_of, results), BYTES_MAX):
            bundles = pa.array([*packed(rows)], pa.binary())
            # They are in no task any more; the column is there because all bundles have it.
            yield wrapped({"task": pa.nulls(len(bundles), pa.int32()), BUNDLE: bundles})
