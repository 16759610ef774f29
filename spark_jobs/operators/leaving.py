"""Bundle the results of a topology in the task that makes them, for a sink that takes bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.spark_jobs.operators.columns import columns_of, wrapped
from headrace.spark_jobs.operators.results import BYTES_MAX
from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.write.bundled import packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd


class Leaving(NamedTuple):
    """The way of results to their sink."""

    def bundled(self, results: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Bundle results in their order."""
        waiting: list[pa.Table] = []
        size = 0
        for frame in results:
            waiting.append(columns_of(frame))
            size += waiting[-1].nbytes
            if size >= BYTES_MAX:
                yield _bundles_of(waiting)
                waiting, size = [], 0
        if waiting:
            yield _bundles_of(waiting)


def _bundles_of(results: list[pa.Table]) -> pd.DataFrame:
    bundles = pa.array([*packed(pa.concat_tables(results))], pa.binary())
    # They are in no task any more; the column is there because all bundles have it.
    return wrapped({"task": pa.nulls(len(bundles), pa.int32()), BUNDLE: bundles})
