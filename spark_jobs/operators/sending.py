"""Bundle what a stage sends to the next one, in the task that sends it.

    results of a stage -> rows of the next one, each for the task of its key -> bundles

Rows that answers will join go to the stage behind the next one, which they pass in their bundles.
Spark shuffles the bundles and looks into none of them. Else it would make a row of each message,
and hand each of these to Python again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark_jobs.operators.bundles import bundles_of
from headrace.spark_jobs.operators.columns import (
    ANSWER,
    ASK,
    NO_INPUT,
    PART,
    RECORD,
    ROW,
    columns_of,
    wrapped,
)
from headrace.spark_jobs.operators.grouped import PART_SENT
from headrace.spark_jobs.operators.results import BYTES_MAX
from headrace.spark_jobs.operators.stages import ANSWER_SENT, ASK_SENT, ROW_SENT
from headrace.spark_jobs.shapes import CARRIED, POSITION
from headrace.spark_jobs.write.gathered import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from headrace.spark_jobs.operators.frames import Spread

_KINDS = {
    ROW_SENT: ROW,
    ASK_SENT: ASK,
    ANSWER_SENT: ANSWER,
    PART_SENT: PART,
}
_VERDICTS = pa.array([*_KINDS], pa.string())
_KIND_OF = np.array([*_KINDS.values(), RECORD], np.int32)
"""The kind of each verdict, and last that of all others: such a row only passes through."""
_ASIDE = ("verdict", "reason", "number", "added", "task")


class Sending(NamedTuple):
    """The way of a stage's results to the tasks of the next stage."""

    spread: Spread
    in_given_order: bool
    """Whether records arrive in an order that was given with them, which results keep."""

    def bundled(self, results: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Bundle results by task; those of one task keep their order."""
        for rows in joined(map(self._rows_of, map(columns_of, results)), BYTES_MAX):
            for batch in rows.combine_chunks().to_batches():
                for bundles in bundles_of(batch, batch.column("kind").to_numpy() == ROW):
                    yield wrapped(dict(zip(bundles.schema.names, bundles.columns, strict=True)))

    def _rows_of(self, results: pa.Table) -> pa.Table:
        """Make rows of results; each sender has one lane, or its rows could overtake one another.

        A row that passes through keeps its verdict aside.
        """
        found = pc.index_in(results["verdict"], value_set=_VERDICTS).fill_null(len(_VERDICTS))
        kinds = _KIND_OF[found.to_numpy()]
        passes = kinds == RECORD
        columns = {
            "task": pa.array(self._tasks_of(results), pa.int32()),
            "kind": pa.array(kinds),
            "input": pc.if_else(
                pa.array(passes), results["input"], pa.scalar(NO_INPUT, pa.int32())
            ),
            "lane": results["task"],
            "place": results["sequence"],
            **{name: results[name] for name in (*CARRIED, "headers")},
            "aside": _asides(results, passes),
        }
        if self.in_given_order:
            columns["arrival"] = results["cause"]
        return pa.table(columns)

    def _tasks_of(self, results: pa.Table) -> NDArray[np.int64]:
        """Return the task of each row; one without a key and a partition stays where it is."""
        own = results["task"].to_numpy()
        partitions = results["partition"].fill_null(-1).to_numpy().astype(np.int64)
        tasks = self.spread.tasks_of(results["key"].to_pylist(), partitions)
        stays = pc.equal(results["verdict"], POSITION).to_numpy()
        stays |= (partitions < 0) & pc.is_null(results["key"]).to_numpy()
        return np.where(stays, own, tasks).astype(np.int64)


def _asides(results: pa.Table, passes: NDArray[np.bool_]) -> pa.Array:
    """Return what each row that passes through was said to be, null for all others."""
    if not passes.any():
        return pa.nulls(len(passes), pa.string())
    rows = results.select(_ASIDE).filter(pa.array(passes)).to_pylist()
    said = [json.dumps({name: it for name, it in row.items() if it is not None}) for row in rows]
    asides = np.full(len(passes), None, object)
    asides[passes] = said
    return pa.array(asides, pa.string())
