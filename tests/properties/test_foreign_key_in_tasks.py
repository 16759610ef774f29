"""Changes of a key in one micro-batch leave a foreign-key join as they would one by one.

Rows and right rows live in several tasks, so answers to earlier values of a row come behind it.
"""

from __future__ import annotations

from typing import Literal

import pytest

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.topology import ForeignKeyStep, Topic
from headrace.spark_jobs.shapes import CHANGED
from headrace.spark_jobs.versioned.tables import Plain
from tests.properties.tasks import Query

LEFT, RIGHT = 0, 1
TOPICS = {LEFT: "l", RIGHT: "r"}
Change = tuple[int, bytes, bytes | None]
BEFORE: list[Change] = [(RIGHT, b"a", b"A"), (LEFT, b"p", b"a1")]
"""A row `p` points at `a`, where there is a right row; nothing is at `b`."""


def _points_at(_: bytes, value: bytes) -> bytes | None:
    return None if value[:1] == b"-" else value[:1]


def _joined(left: bytes | None, right: bytes | None) -> bytes:
    return b"%s+%s" % (left or b"null", right or b"null")


@pytest.mark.parametrize(
    ("together", "inner", "left"),
    [
        ([(LEFT, b"p", None), (LEFT, b"p", b"b2")], None, b"b2+null"),
        ([(LEFT, b"p", b"-"), (LEFT, b"p", b"b2")], None, b"b2+null"),
        ([(LEFT, b"p", None), (LEFT, b"p", b"-")], None, b"-+null"),
        ([(LEFT, b"p", b"b1"), (LEFT, b"p", b"b2")], None, b"b2+null"),
        ([(RIGHT, b"a", None), (LEFT, b"p", b"a2")], None, b"a2+null"),
        ([(LEFT, b"p", b"b1"), (LEFT, b"p", b"a2")], b"a2+A", b"a2+A"),
        ([(LEFT, b"p", None), (LEFT, b"p", b"a2")], b"a2+A", b"a2+A"),
    ],
)
@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_row_that_changes_twice_in_a_micro_batch_has_the_result_of_the_last_change(
    join: Literal["inner", "left"],
    together: list[Change],
    inner: bytes | None,
    left: bytes | None,
) -> None:
    sides = Topic("left", LEFT, Plain()), Topic("right", RIGHT, Plain())
    query = Query(ForeignKeyStep("join", *sides, _points_at, _joined, join), 2, TOPICS)
    results = [
        row["value"]
        for start, batch in ((0, BEFORE), (len(BEFORE), together))
        for row in query.take(
            [
                (side, Record(key, value, offset, (), TOPICS[side], 0, offset))
                for offset, (side, key, value) in enumerate(batch, start)
            ]
        )
        if row["verdict"] == CHANGED
    ]
    assert results[-1] == (inner if join == "inner" else left)


@pytest.mark.parametrize("tasks", [2, 5])
@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_row_meets_the_result_of_another_foreign_key_join(
    join: Literal["inner", "left"], tasks: int
) -> None:
    topics = {0: "orders", 1: "customers", 2: "regions"}
    orders, customers, regions = (Topic(name, at, Plain()) for at, name in topics.items())
    located = ForeignKeyStep("located", customers, regions, _points_at, _joined, join)
    query = Query(ForeignKeyStep("join", orders, located, _points_at, _joined, join), tasks, topics)
    batches = [
        [(2, b"r", b"north"), (1, b"c", b"r-carla"), (0, b"o", b"c-order")],
        [(2, b"r", b"south")],
        [(0, b"o", b"c-again"), (1, b"c", b"r-clara")],
    ]
    ends = []
    for start, batch in enumerate(batches):
        records = [
            (side, Record(key, value, 10 * start + at, (), topics[side], 0, 10 * start + at))
            for at, (side, key, value) in enumerate(batch)
        ]
        results = [row for row in query.take(records) if row["verdict"] == CHANGED]
        assert {row["key"] for row in results} == {b"o"}
        ends.append(results[-1]["value"])
    assert ends == [
        b"c-order+r-carla+north",
        b"c-order+r-carla+south",
        b"c-again+r-clara+south",
    ]


@pytest.mark.parametrize(
    "together",
    [
        [(LEFT, b"p", None), (LEFT, b"p", b"b2")],
        [(LEFT, b"p", b"b1"), (LEFT, b"p", b"b2")],
        [(LEFT, b"p", b"-"), (LEFT, b"p", None)],
    ],
)
def test_a_result_is_deleted_although_other_rows_of_the_micro_batch_fail(
    together: list[Change],
) -> None:
    def joined(left: bytes | None, right: bytes | None) -> bytes:
        if left is not None and left.endswith(b"!"):
            raise ValueError(left)
        return _joined(left, right)

    sides = Topic("left", LEFT, Plain()), Topic("right", RIGHT, Plain())
    query = Query(ForeignKeyStep("join", *sides, _points_at, joined, "inner"), 2, TOPICS)
    # Of so many keys some are in the task of `p`.
    failing: list[Change] = [(LEFT, b"failing%d" % at, b"a!") for at in range(8)]
    results = [
        row["value"]
        for start, batch in ((0, BEFORE), (len(BEFORE), failing + together))
        for row in query.take(
            [
                (side, Record(key, value, offset, (), TOPICS[side], 0, offset))
                for offset, (side, key, value) in enumerate(batch, start)
            ]
        )
        if row["verdict"] == CHANGED and row["key"] == b"p"
    ]
    assert results[-1] is None
