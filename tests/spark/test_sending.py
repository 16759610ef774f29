"""A stage sends each row to its own task of the next stage, in order, and loses none."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers
from headrace.spark_jobs.operators import sending
from headrace.spark_jobs.operators.bundles import bundles_of_rows, set_apart, unbundled
from headrace.spark_jobs.operators.columns import (
    ASK,
    NO_INPUT,
    RECORD,
    ROW,
    frame_of,
    frame_of_asides,
    frame_of_counts,
)
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.results import BYTES_MAX, Results
from headrace.spark_jobs.operators.sending import Sending
from headrace.spark_jobs.operators.stages import ASK_SENT, ROW_SENT, AskStep
from headrace.spark_jobs.operators.topology import ForeignKeyStep, Topic
from headrace.spark_jobs.shapes import BUNDLE, COUNT, DEAD, LATE, POSITION
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.records import Records, objects
from headrace.spark_jobs.versioned.spread import task_of
from headrace.spark_jobs.versioned.state import MemoryRows
from headrace.spark_jobs.versioned.tables import Versioned

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from pyspark.sql import SparkSession

OWN, TASKS = 2, 7
MANY = 500
HEADERS = (("h", b"\x00"),)


def _record(key: bytes | None, place: int) -> Record:
    return Record(key, b"v%d" % place, place - 3, HEADERS, "orders", place % 4, place)


def _sent(verdict: str, records: list[Record], first: int) -> pd.DataFrame:
    columns = Records.of(records)
    size = len(records)
    results = Results(
        verdict,
        np.arange(size),
        columns,
        objects([each.key for each in records]),
        objects([each.value for each in records]),
        np.array([each.timestamp_ms for each in records], np.int64),
    )
    return frame_of(results, OWN, first, np.arange(size) + 1_000, np.full(size, 5, np.int32))


def _of_tasks(frames: Iterable[pd.DataFrame]) -> dict[int, list[dict[str, Any]]]:
    """The rows that each task takes out of its bundles, first those that it would hand on."""
    bundles: dict[int, list[bytes]] = defaultdict(list)
    for frame in frames:
        assert [*frame.columns] == ["task", BUNDLE]
        for task, bundle in zip(frame["task"], frame[BUNDLE], strict=True):
            bundles[task].append(bundle)
    found: dict[int, list[dict[str, Any]]] = {}
    for task, own in bundles.items():
        opened, unopened = set_apart(own)
        assert unopened.rows == len(unbundled(unopened.bundles)["kind"])
        assert {*unbundled(unopened.bundles)["kind"].tolist()} <= {ROW}
        assert ROW not in unbundled(opened)["kind"]
        columns = unbundled([*unopened.bundles, *opened])
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        found[task] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def _keys(count: int) -> list[bytes | None]:
    """Keys of all lengths for which the hash has a path of its own, and null."""
    return [None if place % 11 == 0 else b"%d" % place * (place % 9) for place in range(count)]


@pytest.mark.parametrize("bytes_max", [1, 20_000, BYTES_MAX])
def test_each_message_goes_to_the_task_of_its_key(
    bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "BYTES_MAX", bytes_max)
    rows = [_record(key, place) for place, key in enumerate(_keys(MANY))]
    asks = [_record(key, place + MANY) for place, key in enumerate(reversed(_keys(MANY)))]
    frames = [_sent(ROW_SENT, rows, 0), _sent(ASK_SENT, asks, MANY)]
    found = _of_tasks(Sending(Spread(tasks=TASKS), in_given_order=False).bundled(frames))
    expected: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for place, (kind, one) in enumerate([(ROW, one) for one in rows] + [(ASK, a) for a in asks]):
        expected[task_of(one.key, one.partition, TASKS)].append((kind, place, *one[:3], one.offset))
    assert {*found} == {*range(TASKS)}
    for task, own in found.items():
        names = ("kind", "place", "key", "value", "timestamp_ms", "offset")
        assert [tuple(row[name] for name in names) for row in own] == expected[task]
        assert {(row["input"], row["lane"], row["aside"]) for row in own} == {(NO_INPUT, OWN, None)}
        assert all(decode_headers(row["headers"]) == HEADERS for row in own)
        assert "arrival" not in own[0]


def test_a_row_that_passes_through_keeps_its_verdict() -> None:
    dead = _record(b"k", 6)
    frames = [
        _sent(LATE, [_record(b"k", 5)], 0),
        frame_of_asides(OWN, [({"verdict": DEAD, "reason": "undecodable"}, dead)]),
        frame_of_asides(OWN, [({"verdict": POSITION, "number": 4, "task": 3}, _record(b"k", 9))]),
        frame_of_counts(COUNT, OWN, {"join:taken": (7, 2)}),
    ]
    found = _of_tasks(Sending(Spread(tasks=TASKS), in_given_order=False).bundled(frames))
    said = [
        (task, row["kind"], row["key"], json.loads(row["aside"]))
        for task, own in found.items()
        for row in own
    ]
    of_key = task_of(b"k", 0, TASKS)
    assert of_key not in (OWN, 3)
    assert sorted(said, key=str) == sorted(
        [
            (of_key, RECORD, b"k", {"verdict": LATE, "task": OWN}),
            (of_key, RECORD, b"k", {"verdict": DEAD, "reason": "undecodable", "task": OWN}),
            (3, RECORD, b"k", {"verdict": POSITION, "number": 4, "task": 3}),
            (
                OWN,
                RECORD,
                None,
                {"verdict": COUNT, "reason": "join:taken", "number": 7, "added": 2, "task": OWN},
            ),
        ],
        key=str,
    )
    (late,) = (row for row in found[of_key] if "late" in row["aside"])
    assert (late["input"], late["partition"], late["offset"]) == (5, 1, 5)


def test_a_given_order_of_arrival_is_that_of_the_causes() -> None:
    rows = [_record(b"k", place) for place in range(3)]
    found = _of_tasks(
        Sending(Spread(tasks=TASKS), in_given_order=True).bundled([_sent(ASK_SENT, rows, 0)])
    )
    assert [row["arrival"] for own in found.values() for row in own] == [1_000, 1_001, 1_002]


def test_a_message_goes_to_the_task_that_spark_gives_a_record_of_its_key(
    spark: SparkSession,
) -> None:
    spread = Spread(tasks=TASKS)
    rows = [(key, place % 4) for place, key in enumerate(_keys(MANY))]
    by_spark = spark.createDataFrame(rows, "key BINARY, partition INT").select(spread.task())
    keys, partitions = zip(*rows, strict=True)
    tasks = spread.tasks_of(keys, np.array(partitions, np.int64))
    assert [task for (task,) in by_spark.collect()] == tasks.tolist()


def test_a_stage_saves_its_state_before_its_last_bundles_leave() -> None:
    foreign = ForeignKeyStep(
        "join",
        Topic("orders", 0, Versioned(1_000)),
        Topic("customers", 1, Versioned(1_000)),
        foreign_key_of=lambda _, value: value,
        joiner=lambda left, _: left,
    )
    stage = TaskProcessor(
        lambda _task: AskStep("join", foreign.left, foreign), Expected(), {}, {}, buckets=2
    )
    stage.rows = rows = MemoryRows()
    stage.sending = Sending(Spread(tasks=TASKS), in_given_order=False)
    orders = [_record(b"k%d" % place, place)._asdict() for place in range(40)]
    own = {"task": OWN, "kind": RECORD, "input": 0, "lane": 0, "headers": None}
    (batch,) = bundles_of_rows([{**each, **own, "place": each["offset"]} for each in orders])
    bundles = stage.handleInputRows((OWN,), iter([batch.to_pandas()]), None)
    first = next(bundles)
    assert "orders/0" in rows
    found = _of_tasks([first, *bundles])
    kinds = [row["kind"] for own in found.values() for row in own if row["aside"] is None]
    assert (kinds.count(ROW), kinds.count(ASK)) == (40, 40)
