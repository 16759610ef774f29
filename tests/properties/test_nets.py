"""The net value of many parts of a group counts as they would, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.errors import StateRefused
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import PART
from headrace.spark_jobs.operators.grouped import FoldedStep, PartStep
from headrace.spark_jobs.operators.messages import received
from headrace.spark_jobs.operators.running import open_topology
from headrace.spark_jobs.operators.topology import AggregateStep, Topic
from headrace.spark_jobs.operators.updates import with_updates
from headrace.spark_jobs.shapes import CHANGED, DEAD
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.state import MERGED, MemoryRows, TaskState
from headrace.spark_jobs.versioned.tables import Plain, Storage, Versioned
from headrace.spark_jobs.versioned.totals import Aggregation, Form
from tests.properties.messages import sent
from tests.properties.strategies import chance, seeds
from tests.properties.tasks import Query

TOPICS = {0: "own"}
GROUPS, ROWS = b"ab", tuple(b"r%d" % number for number in range(12))
NET = b"net"


def _add(_: bytes, value: bytes, total: list[int]) -> list[int]:
    if value.startswith(NET):
        count, number = map(int, value.removeprefix(NET).split(b","))
    else:
        count, number = 1, int(value)
    return [total[0] + count, total[1] + number]


def _subtract(_: bytes, value: bytes, total: list[int]) -> list[int]:
    return [total[0] - 1, total[1] - int(value)]


def _net(olds: Sequence[bytes], news: Sequence[bytes]) -> bytes:
    return b"%s%d,%d" % (NET, len(news) - len(olds), sum(map(int, news)) - sum(map(int, olds)))


def _read(stored: bytes) -> list[int]:
    return [int(each) for each in stored.split(b"/")]


def _write(total: list[int]) -> bytes:
    return b"%d/%d" % (*total,)


ONE_BY_ONE = Aggregation(lambda: [0, 0], _add, _subtract, Form(_read, _write))
BY_NETS = ONE_BY_ONE._replace(net=_net)


def _group_of(_: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Take the first byte for the group, the rest for the number; `-` is in none."""
    return None if value.startswith(b"-") else (value[:1], value[1:])


PLAIN = Plain()


def _step(aggregation: Aggregation, storage: Storage = PLAIN) -> AggregateStep:
    step = AggregateStep("total", Topic("own", 0, storage), _group_of, aggregation)
    found: AggregateStep = with_updates(step, "last")
    return found


def _batches(random: Random, faults: float) -> list[list[tuple[int, Record]]]:
    batches, first = [], 0
    for size in random.choices((1, 6, 12, 40), k=5):
        batch = []
        for offset in range(first, first + size):
            group = random.choice(GROUPS)
            number = b"bad" if random.random() < faults else b"%d" % random.randrange(-9, 99)
            value = random.choice((bytes([group]) + number, b"-", None, bytes([group]) + number))
            time_ms = max(0, offset + random.randrange(-6, 4))
            batch.append((0, Record(random.choice(ROWS), value, time_ms, (), "own", 0, offset)))
        batches.append(batch)
        first += size
    return batches


def _told(query: Query, batch: list[tuple[int, Record]]) -> tuple[dict[bytes, Any], list[Any]]:
    """Return the last update of each group, and the dead records."""
    rows = query.take(batch)
    last = {row["key"]: (row["value"], row["timestamp_ms"]) for row in rows if _is(row, CHANGED)}
    return last, sorted(row["offset"] for row in rows if _is(row, DEAD))


def _is(row: dict[str, Any], verdict: str) -> bool:
    return bool(row["verdict"] == verdict)


@given(seeds, st.sampled_from((Plain(), Versioned(8), Versioned(1_000))), st.sampled_from((0, 0.1)))
@example(1, Plain(), 0.1)
@example(2, Versioned(8), 0.1)
@example(3, Versioned(1_000), 0)
def test_nets_lead_to_the_totals_of_their_parts(seed: int, storage: Storage, faults: float) -> None:
    """Values that fail are dead alone, and what failed of a row is not taken out again."""
    queries = [Query(_step(one, storage), 3, TOPICS) for one in (BY_NETS, ONE_BY_ONE)]
    for place, batch in enumerate(_batches(chance(seed), faults)):
        for query in queries:
            if place == 2:
                query.move(5)
        by_nets, one_by_one = (_told(query, batch) for query in queries)
        assert by_nets == one_by_one


def test_a_net_leaves_alone_what_stands_of_a_row_that_failed() -> None:
    """A row may have an empty key, and a net value has none."""
    query = Query(_step(BY_NETS), 1, TOPICS)
    told = []
    for place, values in enumerate(((b"a5",), (b"abad",), (None, b"a1", b"a20"), (b"a300",))):
        rows = [(b"r%d" % at if at else b"", value) for at, value in enumerate(values)]
        batch = [
            (0, Record(key, value, place, (), "own", 0, 10 * place + at))
            for at, (key, value) in enumerate(rows)
            if value is not None
        ]
        last, dead = _told(query, batch)
        told.append((last.get(b"a", (None, 0))[0], dead))
    assert told == [(b"1/5", []), (None, [10]), (b"3/26", []), (b"3/321", [])]


def _parts(aggregation: Aggregation, values: Sequence[bytes]) -> tuple[list[Any], TaskState]:
    """Return the parts of rows with these values: group, time, old, new, row and origin."""
    state = TaskState(MemoryRows(), 2)
    stage = open_topology(PartStep.of(_step(aggregation), is_end=True), state)
    taken = [
        Arrival(0, Record(b"r%d" % at, value, 9 - at, (), "own", 0, at))
        for at, value in enumerate(values)
    ]
    (results,) = stage.process(Arrivals.of(taken))
    _, _, _, keys, messages, times_ms, *_ = results
    parts = [
        (key, time_ms, *received(Record(key, message, time_ms, (), "own", 0, None)).parts)
        for key, time_ms, message in zip(keys, times_ms.tolist(), messages, strict=True)
    ]
    return parts, state


def test_a_group_with_many_parts_sends_one() -> None:
    parts, state = _parts(BY_NETS, (b"a1", b"b20", b"a3", b"c5", b"cbad", b"a-7"))
    assert parts == [
        (b"b", 8, None, b"20", b"r1"),
        (b"c", 6, None, b"5", b"r3"),
        (b"c", 5, None, b"bad", b"r4"),
        (b"a", 9, None, b"net3,-3", None),
    ]
    assert state.numbers[MERGED] == 2
    assert len(_parts(ONE_BY_ONE, (b"a1", b"a3"))[0]) == 2


def test_each_update_that_may_be_kept_has_its_own_part() -> None:
    step = _step(BY_NETS)
    assert PartStep.of(step, is_end=True).nets
    assert not PartStep.of(step, is_end=False).nets
    assert not PartStep.of(replace(step, updates="each"), is_end=True).nets
    assert not PartStep.of(replace(step, storage=Versioned(9)), is_end=True).nets


def test_a_net_that_cannot_be_added_ends_the_query() -> None:
    """A dead letter has one record, and a net value many."""
    state = TaskState(MemoryRows(), 2)
    step = _step(BY_NETS)
    open_topology(FoldedStep("total", step), state)
    parts, _ = _parts(BY_NETS, (b"a1", b"a3"))
    (group, time_ms, *message), *_ = parts
    origin = Record(b"r1", b"a3", time_ms, (), "own", 0, 1)
    with pytest.raises(StateRefused, match="`total` cannot add what its `net` made"):
        state.forgo(Arrival(-PART, origin._replace(key=group, value=sent(origin, *message))))
