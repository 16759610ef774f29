"""A table whose rows point at another: their changes, their join, and its rows by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from headrace.contracts.record import Headers, Record
from headrace.spark_jobs.operators.pairs import paired
from headrace.spark_jobs.operators.topology import ForeignKeyStep, Topic
from headrace.spark_jobs.versioned.tables import Plain
from tests.spark.frames import Row

LEFT, RIGHT = 0, 1
Pairs = dict[str, tuple[Any, Any]]


def row_of(number: int, offset: int, time_ms: int, key: str | None, value: Any) -> Row:
    """Return a record of an input; its value is JSON, or bytes as they are."""
    said = json.dumps(value).encode() if isinstance(value, dict) else value
    bare = None if key is None else key.encode()
    headers: Headers = (("trace", b"%d" % offset), ("empty", None))
    return number, Record(bare, said, time_ms, headers, f"t{number}", 0, offset)


def points_at(_: bytes, value: bytes) -> bytes | None:
    """Return the key to which a row of the left table points."""
    return str(json.loads(value)["group"]).encode()


JOIN = ForeignKeyStep(
    "join", Topic("left", LEFT, Plain()), Topic("right", RIGHT, Plain()), points_at, paired, "left"
)


def changes(random: Random) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Changes of two tables, and the rows that they leave behind."""
    rows: list[Row] = []
    latest: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for place in range(400):
        side = random.choice((LEFT, RIGHT))
        key = f"k{random.randrange(40)}" if side == LEFT else f"g{random.randrange(6)}"
        value = {"group": f"g{random.randrange(6)}", "amount": random.randrange(100), "n": place}
        gone = random.random() < 0.15
        rows.append(row_of(side, place, place, key, None if gone else value))
        latest[side].pop(key, None)
        if not gone:
            latest[side][key] = value
    return rows, *latest


def pairs_told(told: Iterable[Mapping[str, Any]]) -> Pairs:
    """Return the rows of the join at the end, which names its sides `mine` and `theirs`."""
    ends = {row["key"]: row for row in told if row["verdict"] == "changed"}
    return {
        key.decode(): (json.loads(row["mine"]), row["theirs"] and json.loads(row["theirs"]))
        for key, row in ends.items()
        if row["value"] is not None
    }


def pairs_of(left: Mapping[str, Any], right: Mapping[str, Any]) -> Pairs:
    """Return the rows that the join of two tables must have."""
    return {key: (value, right.get(value["group"])) for key, value in left.items()}
