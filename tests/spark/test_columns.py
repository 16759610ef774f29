"""Rows in and out by columns: the order they are put in, and that nothing is lost on the way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Headers, Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.bundles import bundles_of_rows
from headrace.spark_jobs.operators.columns import (
    ANSWER,
    PROGRESS,
    RECORD,
    ROW,
    frame_of_asides,
    take,
)
from headrace.spark_jobs.operators.messages import received
from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.versioned.arrival import merge
from headrace.spark_jobs.write.bundled import BUNDLE_BYTES
from tests.properties.messages import sent

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


def _bundled(rows: list[dict[str, Any]]) -> dict[int, list[pd.DataFrame]]:
    """By task, the frames that Spark would hand over."""
    frames: dict[int, list[pd.DataFrame]] = {}
    for batch in bundles_of_rows(rows):
        for one in batch.to_pylist():
            frames.setdefault(one["task"], []).append(pd.DataFrame([one]))
    return frames


@given(lanes, st.sampled_from([b"", b"x" * 200_000, None]))
def test_rows_come_out_of_a_bundle_as_they_went_in(
    times: list[list[int]], value: bytes | None
) -> None:
    rows = [
        _row(number, place, time_ms)
        | {"task": time_ms % 3, "lane": 0, "partition": 5, "key": b"k%d" % place, "value": value}
        for number, lane in enumerate(times)
        for place, time_ms in enumerate(lane)
    ]
    found = _bundled(rows)
    assert found.keys() == {row["task"] for row in rows}
    for task, frames in found.items():
        own = _frame([row for row in rows if row["task"] == task])
        assert list(take(frames).arrivals) == list(take([own]).arrivals)


def test_large_rows_are_not_in_one_bundle() -> None:
    rows = [
        _row(0, place, 1) | {"task": 0, "value": b"x" * (BUNDLE_BYTES + 1)} for place in range(10)
    ]
    (batch,) = bundles_of_rows(rows)
    assert batch.num_rows == 10
    assert all(len(one) < 2 * BUNDLE_BYTES for one in batch.column(BUNDLE).to_pylist())


def test_a_bundle_keeps_a_given_order_of_arrival() -> None:
    rows = [_row(0, place, 1) | {"task": 0, "arrival": 9 - place} for place in range(10)]
    (frames,) = _bundled(rows).values()
    taken = take(frames)
    assert taken.causes is not None
    assert taken.causes.tolist() == [*range(10)]
    assert [record.offset for _, record in taken.arrivals] == [*range(9, -1, -1)]


def test_columns_that_a_bundle_lacks_are_null() -> None:
    (batch,) = bundles_of_rows([{"task": 2, "kind": PROGRESS, "topic": "t", "value": b"v"}])
    assert batch.schema.field(BUNDLE).type == pa.binary()
    ((_, record),) = take(_bundled([{"task": 2, "kind": PROGRESS, "value": b"v"}])[2]).arrivals
    assert record[:4] == (None, b"v", -(1 << 63), ())
    assert record.offset is None


def test_a_count_that_passes_through_a_stage_still_has_no_time() -> None:
    aside = {"aside": '{"verdict":"count","task":1,"number":7,"added":2}'}
    rows = [_row(0, 0, 1) | aside, {"task": 0, "kind": RECORD, "input": 0, "place": 1} | aside]
    frame = frame_of_asides(0, take(_bundled([{"task": 0, **row} for row in rows])[0]).asides)
    assert frame["timestamp_ms"].isna().tolist() == [False, True]
    assert frame["offset"].isna().tolist() == [False, True]


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
