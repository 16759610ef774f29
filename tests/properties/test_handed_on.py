"""A foreign-key join makes the same of its rows in bundles as of the rows themselves.

In bundles, the second stage hands left rows on without a look at them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any, Literal, NamedTuple

import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.bundles import bundles_of_rows, set_apart, unbundled
from headrace.spark_jobs.operators.columns import RECORD, ROW
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.sending import Sending
from headrace.spark_jobs.operators.topology import (
    ForeignKeyStep,
    Step,
    Topic,
    Topology,
    inputs_of,
)
from headrace.spark_jobs.shapes import BUNDLE, CHANGED
from headrace.spark_jobs.versioned.layout import decode_numbers
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.spread import task_of
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows
from headrace.spark_jobs.versioned.tables import Versioned
from tests.properties.strategies import chance, seeds
from tests.properties.tasks import BUCKETS, Query, stages_of

TASKS = 3
TOPICS = {0: "orders", 1: "customers", 2: "regions"}
VALUES = (b"a1", b"b1", b"a2", b"-", None)
Batch = list[tuple[int, Record]]


def _points_at(_: bytes, value: bytes) -> bytes | None:
    return None if value[:1] == b"-" else value[:1]


def _joined(left: bytes | None, right: bytes | None) -> bytes:
    return b"%s+%s" % (left or b"null", right or b"null")


def _topology(join: Literal["inner", "left"], *, nested: bool) -> ForeignKeyStep:
    orders, customers, regions = (Topic(name, at, Versioned(99)) for at, name in TOPICS.items())
    right: Step = customers
    if nested:
        right = ForeignKeyStep("located", customers, regions, _points_at, _joined, join)
    return ForeignKeyStep("join", orders, right, _points_at, _joined, join)


def _batches(random: Random, inputs: Sequence[int]) -> list[Batch]:
    offsets = iter(range(1 << 32))
    return [
        [
            (number, Record(key, random.choice(VALUES), at % 40, (), TOPICS[number], 0, at))
            for number, at in zip(random.choices(inputs, k=20), offsets, strict=False)
            for key in (random.choice((b"a", b"b", b"c")),)
        ]
        for _ in range(3)
    ]


class _Stage(NamedTuple):
    processor: TaskProcessor
    hears: list[int]
    inputs: set[int]
    state: dict[int, MemoryRows]

    def take(self, bundles: Sequence[tuple[int, bytes]]) -> list[pd.DataFrame]:
        of_tasks: dict[int, list[bytes]] = defaultdict(list)
        for task, bundle in bundles:
            of_tasks[task].append(bundle)
        frames: list[pd.DataFrame] = []
        for task, own in sorted(of_tasks.items()):
            self.processor.rows = self.state.setdefault(task, MemoryRows())
            frame = pd.DataFrame({BUNDLE: own})
            frames += self.processor.handleInputRows((task,), iter([frame]), None)
        return frames


def _processor(topology: Topology, spread: Spread) -> TaskProcessor:
    options = {**spread.options()}
    return TaskProcessor(lambda _task: topology, Expected(), {}, options, BUCKETS)


def _stages(topology: ForeignKeyStep) -> list[_Stage]:
    spread = Spread(tasks=TASKS, buckets=BUCKETS)
    stages = [
        _Stage(_processor(one, spread), hears, inputs_of(one), {})
        for one, hears in stages_of(topology)
    ]
    for each in stages[:-1]:
        each.processor.sending = Sending(spread, in_given_order=False)
    return stages


def _read(batch: Batch, inputs: set[int]) -> list[tuple[int, bytes]]:
    rows = [
        {
            "task": task_of(one.key, 0, TASKS),
            "kind": RECORD,
            "input": number,
            "lane": 0,
            "place": one.offset,
            **one._asdict(),
            "headers": None,
        }
        for number, one in batch
        if number in inputs
    ]
    return [row for each in bundles_of_rows(rows) for row in _pairs(each.to_pandas())]


def _pairs(frame: pd.DataFrame) -> list[tuple[int, bytes]]:
    return [*zip(frame["task"].tolist(), frame[BUNDLE].tolist(), strict=True)]


def _changed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "cause": None} for row in rows if row["verdict"] == CHANGED]


@given(seed=seeds, join=st.sampled_from(("inner", "left")), nested=st.booleans())
def test_a_join_in_bundles_is_the_join_of_its_rows(
    seed: int, join: Literal["inner", "left"], *, nested: bool
) -> None:
    topology = _topology(join, nested=nested)
    stages, query = _stages(topology), Query(topology, TASKS, TOPICS)
    for batch in _batches(chance(seed), [*inputs_of(topology)]):
        sent: list[list[tuple[int, bytes]]] = []
        frames: list[pd.DataFrame] = []
        for stage in stages:
            heard = [one for number in stage.hears for one in sent[number]]
            frames = stage.take([*_read(batch, stage.inputs), *heard])
            sent.append([one for each in frames if BUNDLE in each for one in _pairs(each)])
        results = [row for each in frames for row in pa.Table.from_pandas(each).to_pylist()]
        assert _changed(results) == _changed(query.take(batch))
    for stage, operator in zip(stages, query.operators, strict=True):
        for task, rows in operator.state.items():
            others = {name: row for name, row in rows.items() if name != HEADER}
            assert {n: row for n, row in stage.state[task].items() if n != HEADER} == others


def test_a_stage_counts_and_hands_on_the_rows_that_it_does_not_open() -> None:
    orders, customers = [
        [(0, Record(b"k%d" % at, b"a1", at, (), "orders", 0, at)) for at in range(300)],
        [(1, Record(b"a", b"A", 5, (), "customers", 0, 0))],
    ]
    asking, answering, _ = _stages(_topology("inner", nested=False))
    asked = [one for frame in asking.take(_read(orders, {0})) for one in _pairs(frame)]
    answered = answering.take([*_read(customers, {1}), *asked])
    for task in range(TASKS):
        _, rows = set_apart(bundle for to, bundle in asked if to == task)
        own = [bundle for frame in answered for to, bundle in _pairs(frame) if to == task]
        assert rows.rows > 0
        assert [one for one in own if one in rows.bundles] == rows.bundles
        opened, unopened = set_apart(own)
        assert unopened == ([], 0)
        assert unbundled(opened)["kind"].tolist().count(ROW) == rows.rows
        numbers = decode_numbers(answering.state[task][HEADER])
        is_of_key = task == task_of(b"a", 0, TASKS)
        assert numbers["task:arrivals"] == rows.rows + (301 if is_of_key else 0)
        assert numbers["task:sequence"] == rows.rows + (300 if is_of_key else 0)
