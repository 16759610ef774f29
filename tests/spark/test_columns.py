"""Rows in and out by columns: the order they are put in, and that nothing is lost on the way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Headers, Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.columns import (
    ANSWER,
    PROGRESS,
    RECORD,
    ROW,
    take,
)
from headrace.spark_jobs.operators.messages import received, sent
from headrace.spark_jobs.versioned.arrival import merge

COLUMNS = (
    "task", "kind", "input", "lane", "place", "topic", "partition", "offset", "timestamp_ms",
    "key", "value", "headers", "aside",
)  # fmt: skip

lanes = st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=1, max_size=4)
parts = st.lists(st.none() | st.binary(max_size=9))
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    filled = [dict.fromkeys(COLUMNS) | {"task": 0, "partition": 0, "lane": 0} | row for row in rows]
    columns = {name: [row[name] for row in filled] for name in COLUMNS}
    objects = {"topic", "key", "value", "headers", "aside"}
    return pd.DataFrame(
        {
            name: np.array(column, object if name in objects else np.int64)
            for name, column in columns.items()
        }
    )


def _row(number: int, place: int, time_ms: int, kind: int = RECORD) -> dict[str, Any]:
    return {
        "kind": kind, "input": number, "place": place, "offset": place, "timestamp_ms": time_ms,
        "topic": f"t{number}",
    }  # fmt: skip


@given(lanes, st.randoms(use_true_random=False))
def test_lanes_are_merged_by_their_heads(times: list[list[int]], shuffle: random.Random) -> None:
    rows = [
        _row(number, place, time_ms)
        for number, lane in enumerate(times)
        for place, time_ms in enumerate(lane)
    ]
    shuffle.shuffle(rows)
    if not rows:
        return
    cut = shuffle.randint(0, len(rows))
    frames = [_frame(some) for some in (rows[:cut], rows[cut:]) if some]
    inputs = [
        [
            Record(None, None, time_ms, (), f"t{number}", 0, place)
            for place, time_ms in enumerate(lane)
        ]
        for number, lane in enumerate(times)
    ]
    assert list(take(frames).arrivals) == merge(inputs)


def test_progress_is_read_last_and_rows_with_answers_first() -> None:
    rows = [
        _row(-1, 7, 7, PROGRESS),
        _row(0, 0, 90, ANSWER),
        _row(0, 0, 50),
        _row(0, 0, 99, ROW),
    ]
    taken = take([_frame(rows)])
    assert [number for number, _ in taken.arrivals] == [-ROW, 0, -ANSWER, -PROGRESS]
    assert taken.progress == [3]


def test_rows_that_pass_through_are_taken_apart() -> None:
    rows = [_row(0, 0, 1), _row(0, 1, 2) | {"aside": '{"verdict":"dead"}'}]
    taken = take([_frame(rows)])
    assert [record.offset for _, record in taken.arrivals] == [0]
    assert [(said, record.offset) for said, record in taken.asides] == [({"verdict": "dead"}, 1)]


@given(parts, parts.map(lambda some: [*some, None, b"key"]))
def test_a_message_is_received_as_it_was_sent(
    some: list[bytes | None], more: list[bytes | None]
) -> None:
    origin = Record(more[-1], more[0], -1, (), "t", 3, 4)
    row = origin._replace(key=b"k", value=sent(origin, *some), timestamp_ms=9)
    assert received(row) == (some, origin)


@given(headers)
def test_headers_survive_being_text(some: list[tuple[str, bytes | None]]) -> None:
    given_headers: Headers = tuple(some)
    text = encode_headers(given_headers)
    assert (() if text is None else decode_headers(text)) == given_headers
