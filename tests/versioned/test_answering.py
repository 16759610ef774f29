"""The right table of a foreign-key join takes a batch of asks and changes at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import ASK
from headrace.spark_jobs.operators.messages import Received, sent_all
from headrace.spark_jobs.operators.running import open_topology
from headrace.spark_jobs.operators.stages import AnswerStep
from headrace.spark_jobs.operators.topology import Topic
from headrace.spark_jobs.versioned.answering import Ask
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.records import Records, objects
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.tables import Versioned
from tests.runtime.sidecar import record

RIGHT = 1
STEP = AnswerStep("join", Topic("right", RIGHT, Versioned(1_000)))
MARK = b"m" * 16
Answers = list[tuple[Any, ...]]


def ask(foreign_key: bytes | None, primary_key: bytes, request: Ask, time_ms: int = 1) -> Arrival:
    """An ask as the left row's task sends it."""
    origin = Records.of([record(primary_key, b"left", time_ms)])
    word = objects([request.value.encode()])
    (value,) = sent_all(origin, objects([primary_key]), objects([MARK]), word)
    return Arrival(-ASK, Record(foreign_key, value, time_ms, (), "left", 0, 0))


def right(key: bytes, value: bytes | None, time_ms: int) -> Arrival:
    """A record of the right table."""
    return Arrival(RIGHT, record(key, value, time_ms))


def answers_to(*arrivals: Arrival) -> Answers:
    """Take a batch; return place, primary key, right value and time of each answer."""
    running = open_topology(STEP, TaskState(MemoryRows()))
    (results,) = running.process(Arrivals.of(arrivals))
    rows = Records.of(
        [
            Record(key, value, 0, (), "t", 0, 0)
            for key, value in zip(results.keys, results.values, strict=True)
        ]
    )
    marks, values = Received(rows, 2).parts() if len(rows) else ([], [])
    assert set(marks) <= {MARK}
    columns = (np.asarray(each).tolist() for each in (results.causes, results.keys))
    return [*zip(*columns, values, np.asarray(results.times_ms).tolist(), strict=True)]


def test_an_ask_meets_the_right_row_of_the_highest_time_before_it() -> None:
    assert answers_to(
        ask(b"x", b"p", Ask.ALWAYS),
        right(b"x", b"new", 10),
        right(b"x", b"old", 5),
        ask(b"x", b"q", Ask.IF_PRESENT),
        right(b"x", b"newer", 11),
        ask(None, b"r", Ask.ALWAYS),
    ) == [
        (0, b"p", None, 1),
        (1, b"p", b"new", 10),
        (3, b"q", b"new", 10),
        (4, b"p", b"newer", 11),
        (4, b"q", b"newer", 11),
        (5, b"r", None, 1),
    ]


def test_a_row_that_points_elsewhere_gets_no_more_answers() -> None:
    assert answers_to(
        right(b"x", b"1", 1),
        ask(b"x", b"p", Ask.IF_PRESENT),
        ask(b"x", b"q", Ask.IF_PRESENT),
        ask(b"x", b"p", Ask.FORGET),
        ask(b"x", b"q", Ask.FORGET_AND_ANSWER, 3),
        right(b"x", b"2", 2),
    ) == [(1, b"p", b"1", 1), (2, b"q", b"1", 1), (4, b"q", None, 3)]


def test_an_ask_without_a_right_row_is_answered_once_it_is_there() -> None:
    assert answers_to(
        ask(b"x", b"p", Ask.IF_PRESENT),
        right(b"x", b"1", 2),
        right(b"x", None, 3),
        ask(b"x", b"q", Ask.IF_PRESENT),
    ) == [(1, b"p", b"1", 2), (2, b"p", None, 3)]


def test_a_batch_without_keys_asks_nothing() -> None:
    assert answers_to(ask(None, b"p", Ask.ALWAYS)) == [(0, b"p", None, 1)]
    assert answers_to() == []
