"""The processor alone, over rows in a dict: what a task does with batches of every shape."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from headrace.spark_jobs.operators.bundles import ROWS_SCHEMA
from headrace.spark_jobs.operators.positions import position_row
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.topology import LookUp, Topic, WindowStep
from headrace.spark_jobs.queries.aggregates import Folded, Folds, Regrouped
from headrace.spark_jobs.shapes import COUNT, DEAD, LOWEST, POSITION
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.state import MemoryRows
from headrace.spark_jobs.versioned.tables import Versioned

JOIN = LookUp("join", Topic("table", 0, Versioned(1_000)), stream=1, release="progress")
NUMBERS = {"int", "bigint"}


def _frame(**said: object) -> pd.DataFrame:
    """One row; what is not said is null, as numbers have it."""
    kinds = dict(column.split() for column in ROWS_SCHEMA.split(", "))
    empty = {name: 0 if kind in NUMBERS else None for name, kind in kinds.items()}
    return pd.DataFrame({name: [one] for name, one in (empty | said).items()})


@pytest.mark.parametrize("heard", [{0: 0, 1: 0}, {0: 1, 1: 0}])
@pytest.mark.parametrize("verdict", [DEAD, POSITION])
def test_a_batch_of_nothing_but_rows_that_pass_through(heard: dict[int, int], verdict: str) -> None:
    processor = TaskProcessor(lambda _task: JOIN, Expected(heard, {0: "t"}), {}, {})
    processor.rows = MemoryRows()
    aside = f'{{"verdict": "{verdict}", "reason": "undecodable", "number": 0}}'
    row = _frame(topic="t", key=b"k", value=b"{", offset=7, aside=aside)
    told = pd.concat(processor.handleInputRows((0,), iter([row]), None))
    assert list(told["verdict"]).count(DEAD) == (verdict == DEAD)


def test_windows_behind_a_join_name_neither_tasks_nor_windows_to_a_monitor() -> None:
    folds = Folds(1, (Folded("count", "number", counts_rows=True),))
    regroup = Regrouped((("who",),), (None,))
    step = WindowStep("sums", 0, 10, regroup, folds, "orders", is_behind=True)
    processor = TaskProcessor(lambda _task: step, Expected({0: 0, 1: 0}), {}, {})
    processor.rows = MemoryRows()
    said = {"verdict": LOWEST, "reason": "orders:2", "number": 7, "added": 3, "task": 0}
    rows = [
        _frame(topic="orders", key=b"k", value=b'{"who":"ann"}', timestamp_ms=12),
        _frame(topic="", aside=json.dumps(said)),
        *(_frame(**position_row((lane, "", 0), 0, 7, 0)) for lane in range(2)),
    ]
    told = pd.concat(processor.handleInputRows((0,), iter(rows), None))
    (lowest,) = told[told["verdict"] == LOWEST].to_dict("records")
    assert (lowest["reason"], lowest["number"], lowest["added"]) == ("orders:2", 7, 3 + 1)
    names = set(told[told["verdict"] == COUNT]["reason"])
    assert "sums:taken" in names
    assert not [name for name in names if name.startswith("window:")]
