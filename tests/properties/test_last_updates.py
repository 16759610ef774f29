"""The last updates of micro-batches leave a table as it is when each update leaves.

Rows that meet in other tasks are merged before they travel, and results before they leave.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.errors import TopologyRefused
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    FilterStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    MapStep,
    ReadAgainStep,
    Step,
    Topic,
)
from headrace.spark_jobs.operators.updates import with_updates
from headrace.spark_jobs.shapes import CHANGED
from headrace.spark_jobs.versioned.state import MERGED
from headrace.spark_jobs.versioned.tables import Plain, Storage, Versioned
from headrace.spark_jobs.versioned.totals import sum_of
from tests.chance import FEWER
from tests.properties.strategies import chance, seeds
from tests.properties.tasks import Query

TOPICS = {0: "left", 1: "right", 2: "third"}
KEYS = (b"a", b"b", b"c")
VALUES = (b"a1", b"a2", b"b1", b"b2", b"-", None)
"""A value points at the key that it begins with; `-` points nowhere."""
STORAGES: tuple[Storage, ...] = (Plain(), Versioned(8), Versioned(1_000))


def _points_at(_: bytes, value: bytes) -> bytes | None:
    return None if value[:1] == b"-" else value[:1]


def _joined(left: bytes | None, right: bytes | None) -> bytes | None:
    return None if right == b"a2" else b"%s+%s" % (left or b"null", right or b"null")


def _grouped(key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    return None if value[:1] == b"-" else (value[:1], key + value)


def _topologies(storage: Storage) -> dict[str, Step]:
    left, right, third = (Topic(name, at, storage) for at, name in TOPICS.items())
    foreign = ForeignKeyStep("join", left, right, _points_at, _joined)
    total = sum_of(sum)
    inner = ForeignKeyStep("inner", right, third, _points_at, _joined, "left")
    both = JoinStep("both", left, right, joiner=_joined, join="outer")
    return {
        "topic": left,
        "filter": FilterStep("filter", left, lambda _, value: value != b"a2"),
        "map": MapStep("map", left, lambda _, value: value * 2),
        "joined inner": JoinStep("join", left, right, joiner=_joined, join="inner"),
        "joined left": JoinStep("join", left, right, joiner=_joined, join="left"),
        "joined outer": both,
        "joined twice": JoinStep("join", both, third, joiner=_joined, join="left"),
        "foreign inner": foreign,
        "foreign left": ForeignKeyStep("join", left, right, _points_at, _joined, "left"),
        "foreign twice": ForeignKeyStep("join", left, inner, _points_at, _joined, "left"),
        "grouped": AggregateStep("total", left, _grouped, total),
        "grouped join": AggregateStep("total", both, _grouped, total),
        "versions": ReadAgainStep("again", both, Versioned(1_000)),
    }


NAMES = list(_topologies(Plain()))


def _batches(random: Random, count: int) -> list[list[tuple[int, Record]]]:
    batches, offset = [], 0
    for _ in range(count):
        batch: list[tuple[int, Record]] = []
        for _ in range(random.choice((1, 3, 12))):
            number = random.randrange(len(TOPICS))
            time_ms = max(0, offset + random.randrange(-6, 4))
            key, value = random.choice(KEYS), random.choice(VALUES)
            batch.append((number, Record(key, value, time_ms, (), TOPICS[number], 0, offset)))
            offset += 1
        batches.append(batch)
    return batches


def _rows(query: Query, batch: list[tuple[int, Record]]) -> list[dict[str, Any]]:
    return [row for row in query.take(batch) if row["verdict"] == CHANGED]


def _is_nothing(name: str, value: bytes | None) -> bool:
    """A group that had rows within a micro-batch alone has none, or the sum of none."""
    return value is None or (name.startswith("grouped") and not any(value))


def _has_versions(name: str, storage: Storage) -> bool:
    """Versions behind the newest one of their key leave beside it."""
    of_topic = isinstance(storage, Versioned) and name in {"topic", "filter", "map"}
    return of_topic or name == "versions"


def _check(name: str, storage: Storage, random: Random) -> None:
    """Compare what has left both ways, behind each micro-batch."""
    each = _topologies(storage)[name]
    queries = Query(each, 3, TOPICS), Query(with_updates(each, "last"), 3, TOPICS)
    tables: list[dict[bytes, tuple[int, bytes | None]]] = [{}, {}]
    has_versions = _has_versions(name, storage)
    for place, batch in enumerate(_batches(random, 4)):
        if place == 2:
            queries[1].move(5)
        for query, table in zip(queries, tables, strict=True):
            rows = _rows(query, batch)
            keys = Counter(row["key"] for row in rows)
            assert query is queries[0] or has_versions or max(keys.values(), default=1) == 1
            for row in rows:
                time_ms, before_ms = row["timestamp_ms"], table.get(row["key"], (0, None))[0]
                if not has_versions or time_ms >= before_ms:
                    table[row["key"]] = time_ms, row["value"]
        shown = [
            {key: value for key, (_, value) in table.items() if not _is_nothing(name, value)}
            for table in tables
        ]
        assert shown[0] == shown[1]


@FEWER
@pytest.mark.parametrize("name", NAMES)
@given(st.sampled_from(STORAGES), seeds)
@example(Plain(), 1)
@example(Versioned(8), 2)
@example(Versioned(1_000), 3)
def test_the_last_updates_leave_what_each_update_leaves(
    name: str, storage: Storage, seed: int
) -> None:
    _check(name, storage, chance(seed))


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_changes_thrice_leaves_once(name: str) -> None:
    query = Query(with_updates(_topologies(Plain())[name], "last"), 3, TOPICS)
    before = [(at, Record(b"a", b"a1", at, (), topic, 0, at)) for at, topic in TOPICS.items()]
    query.take(before)
    merged = _merged(query)
    values = (b"a1", b"a3", b"b1", b"a4")
    batch = [(0, Record(b"a", value, at, (), "left", 0, at)) for at, value in enumerate(values, 10)]
    rows = _rows(query, batch)
    assert [row["key"] for row in rows] == [b"a"]
    assert _merged(query) - merged == len(values) - 1


def _merged(query: Query) -> int:
    return sum(operator.totals().get(MERGED, 0) for operator in query.operators)


def test_only_a_table_has_last_updates() -> None:
    looked_up = LookUp("look-up", Topic("left", 0, Versioned(8)), stream=1, grace_ms=0)
    with pytest.raises(TopologyRefused, match="`look-up` is no table"):
        with_updates(looked_up, "last")
