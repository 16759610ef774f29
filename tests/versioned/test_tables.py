"""Tables as streams of changes: old values, versions handed on, refusals, aggregations, joins."""

from __future__ import annotations

from typing import Literal

import pytest

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.versioned.aggregation import Aggregated
from headrace.spark_jobs.versioned.answering import Answering
from headrace.spark_jobs.versioned.arrival import (
    Arrival,
    Lateness,
    dropped_records,
    lateness,
    merge,
    observe_lateness,
)
from headrace.spark_jobs.versioned.foreign_key import (
    ForeignKeyJoin,
    Resolving,
    Subscribing,
)
from headrace.spark_jobs.versioned.history import PlainStore, Version
from headrace.spark_jobs.versioned.refusals import refuse_global, refuse_suppress
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_table import TableTableJoin
from headrace.spark_jobs.versioned.tables import (
    Derived,
    Filtered,
    Plain,
    Restored,
    Source,
    Table,
    Versioned,
)
from headrace.spark_jobs.versioned.totals import Aggregation, read_long, reduce, sum_of
from tests.versioned.examples import FIRST, SECOND, first, record, second
from tests.versioned.taken import run


@pytest.fixture
def state() -> TaskState:
    return TaskState(MemoryRows(), 2)


def joined(left: bytes | None, right: bytes | None) -> bytes:
    return b"%s+%s" % (left or b"-", right or b"-")


def before_colon(_: bytes, value: bytes) -> bytes | None:
    head, colon, _ = value.partition(b":")
    return head if colon else None


def by_group(key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    group = before_colon(key, value)
    return None if group is None else (group, value)


def all_kinds(state: TaskState) -> dict[str, Table]:
    source = Source(state, "source", FIRST, Versioned(100))
    other = Source(state, "other", SECOND, Versioned(100))
    return {
        "source": source,
        "filtered": Filtered(state, "filtered", source, lambda *_: True, None),
        "mapped": Derived(state, "mapped", source, lambda _, value: value, None),
        "kept": Filtered(state, "kept", source, lambda *_: True, Versioned(7)),
        "plain": Filtered(state, "plain", source, lambda *_: True, Plain()),
        "restored": Restored(state, "restored", source, None),
        "again": Restored(state, "again", source, Versioned(9)),
        "joined": TableTableJoin(state, "joined", source, other, joiner=joined, join="inner"),
        "pointed": ForeignKeyJoin(
            state,
            "pointed",
            source,
            other,
            foreign_key_of=before_colon,
            joiner=joined,
            join="inner",
        ),
        "counted": Aggregated(state, "counted", source, by_group, sum_of(len)),
    }


def test_some_steps_stay_versioned(state: TaskState) -> None:
    retention_ms = {name: table.retention_ms for name, table in all_kinds(state).items()}
    versioned = {"source": 100, "filtered": 100, "mapped": 100, "kept": 7, "again": 9}
    assert {name: each for name, each in retention_ms.items() if each is not None} == versioned
    assert {name for name, table in all_kinds(state).items() if table.versioned} == {*versioned}


def test_suppress_refuses_what_is_versioned(state: TaskState) -> None:
    for name, table in all_kinds(state).items():
        if table.versioned:
            with pytest.raises(TopologyRefused, match=f"`limit`.*`{name}`"):
                refuse_suppress(table, "limit")
        else:
            refuse_suppress(table, "limit")


def test_a_global_table_may_not_be_versioned() -> None:
    refuse_global(Plain(), "rates")
    refuse_global(None, "rates")
    with pytest.raises(TopologyRefused, match=r"`rates`.*global"):
        refuse_global(Versioned(100), "rates")


def test_old_values_are_told_where_somebody_asks(state: TaskState) -> None:
    source = Source(state, "source", FIRST, None)
    mapped = Derived(state, "mapped", source, lambda _, value: value + b"!", None)
    assert mapped.send_old(force=False) is False
    assert [change.old for change in run(mapped, [first(b"k", b"1", 1)])] == [None]
    assert mapped.send_old(force=True) is True
    changes = run(mapped, [first(b"k", b"2", 2), first(b"k", b"3", 1), first(b"k", None, 3)])
    assert [(change.new, change.old) for change in changes] == [
        (b"2!", None),
        (b"3!", b"2!"),
        (None, b"3!"),
    ]


def test_out_of_order_is_marked_and_the_old_value_is_the_latest_by_time(state: TaskState) -> None:
    source = Source(state, "source", FIRST, Versioned(100))
    source.send_old(force=False)
    changes = run(source, [first(b"k", b"5", 5), first(b"k", b"3", 3), first(b"k", b"5b", 5)])
    assert [(change.old, change.is_latest) for change in changes] == [
        (None, True),
        (b"5", False),
        (b"5", True),
    ]
    assert changes[1].cause == 1


def test_every_table_record_is_kept_or_dropped(state: TaskState) -> None:
    source = Source(state, "source", FIRST, Versioned(10))
    run(source, [first(b"k", b"v", 100), first(None, b"v", 1), first(b"k", b"v", 89)])
    state.save()
    assert state.numbers["source:taken"] == 3
    assert state.numbers["source:kept"] == 1
    assert dropped_records(state) == 2


def test_lateness_is_measured_against_the_task(state: TaskState) -> None:
    observe_lateness(state, [first(None, b"v", 10), second(b"k", b"v", 4), first(b"k", b"v", 12)])
    observe_lateness(state, [second(b"k", b"v", 2), second(b"k", b"v", 11)])
    observe_lateness(state, [first(b"k", b"v", 12)])
    assert lateness(state) == Lateness(records=6, total_ms=17, max_ms=10)


def test_inputs_are_merged_by_their_heads_and_tables_go_first() -> None:
    table = [record(b"t", b"1", 5), record(b"t", b"2", 1), record(b"t", b"3", 9)]
    stream = [record(b"s", b"1", 5), record(b"s", b"2", 7)]
    merged = merge([table, stream, []])
    assert [(number, each.value) for number, each in merged] == [
        (0, b"1"),
        (0, b"2"),
        (1, b"1"),
        (1, b"2"),
        (0, b"3"),
    ]
    assert merge([]) == []


def test_a_join_of_a_join(state: TaskState) -> None:
    left = Source(state, "left", FIRST, Plain())
    right = Source(state, "right", SECOND, Plain())
    third = Source(state, "third", 2, Plain())
    inner = TableTableJoin(state, "inner", left, right, joiner=joined, join="inner")
    outer = TableTableJoin(state, "outer", third, inner, joiner=joined, join="outer")
    third_arrival = Arrival(2, record(b"k", b"c", 3))
    changes = run(outer, [first(b"k", b"a", 1), second(b"k", b"b", 2), third_arrival])
    assert [(change.new, change.timestamp_ms) for change in changes] == [
        (b"-+a+b", 2),
        (b"c+a+b", 3),
    ]
    assert outer.latest(b"k") == Version(b"c+a+b", 3, None)
    assert outer.latest(b"unknown") is None
    assert inner.values_as_of([record(b"k", b"", 0), record(None, b"", 0)]) == [b"a+b", None]


def test_user_functions_aggregate(state: TaskState) -> None:
    longest = Aggregation(
        lambda: b"",
        lambda group, value, so_far: b"%s(%s+%s)" % (group, so_far, value),
        lambda group, value, so_far: b"%s(%s-%s)" % (group, so_far, value),
    )
    source = Source(state, "source", FIRST, Plain())
    aggregated = Aggregated(state, "longest", source, by_group, longest, Versioned(1000))
    changes = run(aggregated, [first(b"k", b"g:1", 5), first(b"k", b"g:2", 3)])
    assert [(change.new, change.timestamp_ms) for change in changes] == [
        (b"g(+g:1)", 5),
        (b"g(g(g(+g:1)-g:1)+g:2)", 5),
    ]
    assert aggregated.versioned


def test_sums_go_below_zero_and_groups_can_be_left(state: TaskState) -> None:
    total = sum_of(lambda value: int(value.partition(b":")[2]))
    aggregated = Aggregated(state, "sum", Source(state, "t", FIRST, Plain()), by_group, total)
    rows = [first(b"k", b"g:-5", 1), first(b"j", b"g:3", 2), first(b"k", b"none", 3)]
    sums = [read_long(change.new or b"") for change in run(aggregated, rows)]
    assert sums == [-5, -2, 3]


def test_reduce_takes_the_first_value_as_it_is(state: TaskState) -> None:
    biggest = reduce(max, lambda so_far, _: so_far)
    aggregated = Aggregated(state, "max", Source(state, "t", FIRST, Plain()), by_group, biggest)
    changes = run(aggregated, [first(b"k", b"g:1", 9), first(b"j", b"g:7", 2)])
    assert [(change.new, change.timestamp_ms) for change in changes] == [(b"g:1", 9), (b"g:7", 9)]


@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_row_that_points_elsewhere_is_asked_no_more(
    state: TaskState, join: Literal["inner", "left"]
) -> None:
    left = Source(state, "left", FIRST, Plain())
    right = Source(state, "right", SECOND, Plain())
    pointed = ForeignKeyJoin(
        state, "join", left, right, foreign_key_of=before_colon, joiner=joined, join=join
    )
    run(pointed, [first(b"p", b"x:1", 1), first(b"p", b"y:1", 2)])
    assert run(pointed, [second(b"x", b"X", 3)]) == []
    assert dropped_records(state) == 0
    assert [change.new for change in run(pointed, [second(b"y", b"Y", 4)])] == [b"y:1+Y"]


def test_a_stale_answer_is_dropped(state: TaskState) -> None:
    """Over many tasks an answer may come when the left value has changed already."""
    left, right = PlainStore(state, "left"), PlainStore(state, "right")
    source = Source(state, "source", FIRST, Plain())
    source.send_old(force=True)
    subscribing = Subscribing(state, "join", before_colon, "left")
    answering = Answering(state, "join")
    resolving = Resolving(state, "join", joined, "left")
    right.put(b"x", b"X", 1)
    answers = []
    for arrival in (first(b"p", b"x:1", 2), first(b"p", b"y:2", 3)):
        for change in source.take(0, arrival):
            left.put(change.key, change.new, change.timestamp_ms)
            for subscription in subscribing.subscribe(change, versioned=False):
                answers += answering.ask(subscription, right)
    results = [resolving.resolve(answer, left) for answer in answers]
    assert [result and result.new for result in results] == [None, b"y:2+-"]
    assert results[0] is None
    assert dropped_records(state) == 1
