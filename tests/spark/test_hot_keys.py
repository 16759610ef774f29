"""Hot keys without Spark: which rows are copied, which topologies refuse them, what is noted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.contracts.errors import StateOfOtherOptions, TopologyRefused
from headrace.spark_jobs.operators.bundles import ROWS_SCHEMA, unbundled
from headrace.spark_jobs.operators.columns import COPY, RECORD
from headrace.spark_jobs.operators.frames import Spread, bundled
from headrace.spark_jobs.operators.hot_keys import HotKeys, hot_keys_of
from headrace.spark_jobs.operators.stamp import keep_options
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    MapStep,
    StreamJoin,
    Topic,
    Topology,
)
from headrace.spark_jobs.versioned.moved_numbers import tasks_before
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import count

HOT = Spread(tasks=4, hot_keys=frozenset({b"p1", b"p2"}))
PRICES = Topic("prices", 0, Versioned(60_000))
PRICED = LookUp("priced", PRICES, stream=1, release="progress")
TOPICS = {0: "prices", 1: "orders"}


def rows(*given: tuple[int, int, bytes | None, str | None]) -> pa.RecordBatch:
    """Rows of records, by task, input, key and what is known of them already."""
    task, number, key, aside = zip(*given, strict=True)
    columns = {"kind": [RECORD] * len(given), "partition": [0] * len(given), "aside": aside}
    columns |= {"task": task, "input": number, "key": key, "topic": [TOPICS[n] for n in number]}
    columns |= {"offset": range(len(given)), "timestamp_ms": [7] * len(given)}
    kinds = {
        "int": pa.int32(),
        "bigint": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    return pa.RecordBatch.from_pydict(
        {
            name: pa.array(columns.get(name, [None] * len(given)), kinds[kind])
            for name, kind in map(str.split, ROWS_SCHEMA.split(", "))
        }
    )


def test_a_table_record_of_a_hot_key_is_copied_to_each_task_but_its_own() -> None:
    hot = hot_keys_of(PRICED, HOT)
    assert hot == HotKeys(HOT.hot_keys, table=0, stream=1, tasks=4)
    given = rows(
        (2, 0, b"p1", None),
        (3, 0, b"p3", None),
        (1, 0, None, None),
        (0, 1, b"p1", None),
        (2, 0, b"p1", '{"verdict": "dead"}'),
        (0, 0, b"p2", None),
    )
    copies = [row for batch in hot.copies_of(given) for row in batch.to_pylist()]
    assert {row["kind"] for row in copies} == {COPY}
    assert sorted((row["key"], row["task"]) for row in copies) == [
        *((b"p1", task) for task in (0, 1, 3)),
        *((b"p2", task) for task in (1, 2, 3)),
    ]


class Frame:
    """A frame of one batch of rows, as far as rows are bundled."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def mapInArrow(self, function: Any, _schema: str) -> list[dict[str, Any]]:  # noqa: N802 (Spark's)
        """Return the rows that a function makes."""
        return [row for made in function(iter([self._batch])) for row in made.to_pylist()]


def test_each_offset_arrives_once_beside_copies_and_all_tasks_know_how_far_it_is() -> None:
    given = rows(
        (2, 0, b"p1", None),
        (3, 0, b"p3", None),
        (0, 1, b"p1", None),
        (1, 1, b"p1", None),
        (2, 0, b"p1", None),
    )
    read = given.drop_columns(["kind", "lane", "place"])
    bundles: Any = bundled(
        cast("Any", Frame(read)), HOT.tasks_waiting_for, hot_keys_of(PRICED, HOT)
    )
    of_tasks = {
        task: unbundled([b["bundle"] for b in bundles if b["task"] == task]) for task in range(4)
    }
    arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for task, columns in of_tasks.items():
        names = ("kind", "input", "offset", "aside", "lane", "place")
        for kind, number, offset, aside, *at in zip(
            *(columns[name] for name in names), strict=True
        ):
            assert (aside is None) == (number >= 0)
            assert at == [0, offset]
            arrived[int(kind) if aside is None else -1].append((task, int(offset)))
    assert sorted(arrived[RECORD]) == [(0, 2), (1, 3), (2, 0), (2, 4), (3, 1)]
    others = [task for task in range(4) if task != 2]
    assert sorted(arrived[COPY]) == [(task, offset) for task in others for offset in (0, 4)]
    assert sorted(arrived[-1]) == [(task, offset) for task in range(4) for offset in (3, 4)]


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (replace(PRICED, release="stream-time"), "releases by stream time"),
        (replace(PRICED, corrects=True), "corrects what left"),
        (replace(PRICED, asks_cold=True), "asks a cold history"),
        (replace(PRICED, table=Topic("prices", 0, Plain())), "`prices` is not a versioned table"),
        (
            replace(PRICED, table=MapStep("mapped", PRICES, lambda _key, value: value)),
            "`mapped` is not a versioned table read from a topic",
        ),
        (PRICES, "only a stream that looks up in a table"),
        (JoinStep("a", PRICES, PRICES, lambda *_: b""), "only a stream that looks up"),
        (StreamJoin("a", (0, 1), lambda *_: b"", 1), "only a stream that looks up"),
        (
            ForeignKeyStep("a", PRICES, PRICES, lambda *_: None, lambda *_: b""),
            "only a stream that looks up",
        ),
        (AggregateStep("a", PRICES, lambda *_: None, count()), "only a stream that looks up"),
    ],
)
def test_a_topology_whose_keys_need_one_task_is_refused(topology: Topology, said: str) -> None:
    assert hot_keys_of(topology, Spread(tasks=4)) is None
    with pytest.raises(TopologyRefused, match=said):
        hot_keys_of(topology, HOT)


def test_tasks_that_are_partitions_have_no_hot_keys() -> None:
    with pytest.raises(TopologyRefused, match="its tasks are partitions"):
        hot_keys_of(PRICED, replace(HOT, by="partition"))


def test_a_checkpoint_keeps_its_hot_keys_and_has_none_if_it_notes_none() -> None:
    cold = Spread(tasks=4).options()
    assert not [name for name in cold if "hot" in name], "as earlier versions noted"
    numbers = dict(HOT.options())
    same = replace(HOT, hot_keys=frozenset([b"p2", b"p1"]))
    assert keep_options(numbers, same.options()) == []
    more = replace(HOT, hot_keys=HOT.hot_keys | {b"p3"})
    for before, now in ((HOT.options(), cold), (cold, HOT.options()), (numbers, more.options())):
        noted = dict(before)
        with pytest.raises(StateOfOtherOptions, match="`hot-keys` had other keys or none, and the"):
            keep_options(noted, now)
        assert noted == before


def test_state_with_hot_keys_is_not_moved() -> None:
    assert tasks_before([Spread(tasks=4).options()]) == 4
    with pytest.raises(StateOfOtherOptions, match="was written with `hot-keys`"):
        tasks_before([HOT.options()])
