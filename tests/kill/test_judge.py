"""A judge who finds nothing wrong must be able to find something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest

from headrace.contracts.dead_letter import INTAKE, DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    Position,
    put_position,
    put_purged,
    records_of,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.kill import state
from tests.kill.compare import Difference, compare
from tests.kill.expected import Leaving, itself
from tests.kill.judge import answers_of, judge
from tests.kill.pipelines import CASES, CLEANED, DEAD, LATE, RAW
from tests.kill.readings import Readings, Topic
from tests.kill.spread import id_problems, order_problems
from tests.kill.stream import POISON_MS, Stream

CASE = CASES["deduplicate"]
SPEC = CASE.spec
(HOP,) = SPEC.hops()
_IDS = b"\x01\x00\x00\x01", b"\x01\x00\x00\x02"
"""Between these stand the ids of the first store."""


def _source(count: int) -> list[Record]:
    """A stream as it stands in one partition, its aborted part left out."""
    portions = islice(Stream(RAW, 1, seed=1).portions(20), count // 10)
    records = [record for one in portions if one.fate != "aborted" for record in one.records]
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def _written(leaving: Sequence[Leaving], topic: str) -> list[Record]:
    return [Record(*one[:4], topic, 0, offset) for offset, one in enumerate(leaving)]


def _right() -> Readings:
    """The output of a service that does everything right."""
    source = Topic({0: _source(1_000)}, 1_000)
    answer = answers_of(SPEC, Readings({RAW: source}, []), 1)[HOP.name, 0]
    letters = [DeadLetter(one.cause, INTAKE, Reason.FUTURE_TIMESTAMP, "") for one in answer.dead]
    dead = [letter.record._replace(headers=dead_headers(letter), topic=DEAD) for letter in letters]
    topics = {
        RAW: source,
        CLEANED: Topic({0: _written(answer.cleaned, CLEANED)}, 0),
        LATE: Topic({0: _written(answer.late, LATE)}, 0),
        DEAD: Topic({0: dead}, 0),
    }
    return Readings(topics, [])


def _judged(readings: Readings, *, exactly_once: bool = True) -> Difference:
    return judge(SPEC, readings, answers_of(SPEC, readings, 1), exactly_once=exactly_once)


def _changed(topic: str, change: Callable[[list[Record]], None]) -> Readings:
    readings = _right()
    change(readings.topics[topic].committed[0])
    return readings


def _leave_out_the_second(records: list[Record]) -> None:
    del records[1]


def test_a_right_run_is_found_right() -> None:
    readings = _right()
    assert all(readings.topics[topic].committed[0] for topic in (CLEANED, LATE, DEAD))
    assert _judged(readings).problems == []


@pytest.mark.parametrize("topic", [CLEANED, LATE, DEAD])
def test_a_record_that_is_missing_is_lost(topic: str) -> None:
    difference = _judged(_changed(topic, _leave_out_the_second))
    assert (difference.lost, difference.doubled, difference.dirty) == (1, 0, 0)
    assert len(difference.problems) == 1


@pytest.mark.parametrize("topic", [CLEANED, LATE, DEAD])
def test_a_record_that_stands_twice_is_doubled(topic: str) -> None:
    difference = _judged(_changed(topic, lambda records: records.append(records[0])))
    assert (difference.lost, difference.doubled, difference.dirty) == (0, 1, 0)
    assert len(difference.problems) == 1


def test_a_record_that_nobody_expects_is_dirty() -> None:
    stranger = Record(b"key", b"from an aborted transaction", 0, (), CLEANED, 0, 0)
    difference = _judged(_changed(CLEANED, lambda records: records.append(stranger)))
    assert (difference.lost, difference.doubled, difference.dirty) == (0, 0, 1)


def test_a_header_that_is_changed_is_a_record_lost_and_one_dirty() -> None:
    def change(records: list[Record]) -> None:
        records[3] = records[3]._replace(headers=records[3].headers[1:])

    difference = _judged(_changed(CLEANED, change))
    assert (difference.lost, difference.doubled, difference.dirty) == (1, 0, 1)


def test_the_order_counts() -> None:
    def swap(records: list[Record]) -> None:
        records[3], records[4] = records[4], records[3]

    difference = _judged(_changed(CLEANED, swap))
    assert (difference.lost, difference.doubled, difference.dirty) == (0, 0, 0)
    (problem,) = difference.problems
    assert "the first 3 are right" in problem


def test_a_difference_names_the_source_record() -> None:
    must = _right().topics[CLEANED].committed[0][1]
    (problem,) = _judged(_changed(CLEANED, _leave_out_the_second)).problems
    assert f"key={must.key!r} time={must.timestamp_ms}" in problem
    assert f"because of {RAW}/0@" in problem


def test_a_topic_of_somebody_else_is_a_problem() -> None:
    assert _judged(replace(_right(), others=["oops"])).problems != []


def test_at_least_once_a_stretch_may_come_again_and_no_record_be_left_out() -> None:
    leaving = [itself(record) for record in _source(100)]
    records = _written(leaving, CLEANED)
    again = [*records[:60], *records[40:]]
    assert compare("", leaving, again, repeats=True).repeated == 20
    assert compare("", leaving, again, repeats=True).problems == []
    assert compare("", leaving, again).doubled == 20
    ahead = [*records[:40], *records[60:], *records[40:]]
    assert compare("", leaving, ahead, repeats=True).problems != []
    assert compare("", leaving, [*again[:-1]], repeats=True).lost == 1


def test_at_least_once_what_stands_twice_in_the_source_must_leave_twice() -> None:
    leaving = [itself(record) for record in _source(20)]
    leaving = [*leaving[:10], *leaving[5:]]
    records = _written(leaving, CLEANED)
    again = [*records[:12], *records[3:]]
    assert compare("", leaving, again, repeats=True).problems == []
    assert compare("", leaving, records[:10] + records[15:], repeats=True).lost == 5


def _states() -> tuple[MemoryStore, list[Record], list[Record]]:
    """A state, its changelog, and the source that it has reached."""
    source = _source(4_000)
    disk = MemoryStore()
    overlay = Overlay(disk, SPEC.pipeline)
    chain = Chain(HOP.operators, overlay.view)
    changelog: list[Record] = []
    for start in range(0, len(source), 100):
        part = source[start : start + 100]
        chain.process(Batch.of([record for record in part if record.timestamp_ms < POISON_MS]))
        chain.save()
        reached = Position(start + len(part), chain.lateness.time_ms)
        put_position(overlay.view(ABOUT), reached)
        for key, row in records_of(overlay):
            changelog.append(Record(key, row, 0, (), "changelog", 0, len(changelog)))
        overlay.commit({CHANGELOG: len(changelog)})
    return disk, changelog, source


def test_a_state_that_is_right_is_found_right() -> None:
    disk, changelog, source = _states()
    logged, left_open = state.rebuilt(SPEC, changelog)
    assert left_open == []
    assert state.row_count(logged) > 100
    assert state.source_position(SPEC, logged) == len(source)
    assert list(state.row_problems(CASE, logged, disk)) == []


def test_a_commit_that_never_ended_is_left_open() -> None:
    _, changelog, _ = _states()
    _, left_open = state.rebuilt(SPEC, changelog[:-1])
    assert left_open != []


def _first_row(store: MemoryStore) -> tuple[bytes, bytes]:
    """A row that deduplicate wrote."""
    return next(iter(store.range(*_IDS)))


def test_rows_that_differ_are_found() -> None:
    disk, changelog, _ = _states()
    logged, _ = state.rebuilt(SPEC, changelog)
    key, row = _first_row(disk)
    disk.write([], {key: row + b"!"})
    assert [one.partition(":")[0] for one in state.row_problems(CASE, logged, disk)] == [
        "not the same"
    ]


def test_a_row_on_disk_that_no_changelog_knows_is_dirty() -> None:
    disk, changelog, _ = _states()
    logged, _ = state.rebuilt(SPEC, changelog)
    key, row = _first_row(disk)
    disk.write([], {key + b"!": row})
    assert [one.partition(":")[0] for one in state.row_problems(CASE, logged, disk)] == [
        "on disk alone"
    ]


def test_a_row_may_be_missing_on_disk_only_if_its_time_is_over() -> None:
    disk, changelog, _ = _states()
    logged, _ = state.rebuilt(SPEC, changelog)
    rows = [key for key, _ in disk.range(*_IDS)]
    disk.write([], {rows[0]: None})
    assert list(state.row_problems(CASE, logged, disk)) == []
    disk.write([], {rows[-7]: None})
    assert len(list(state.row_problems(CASE, logged, disk))) == 1


def test_a_purged_row_may_be_on_disk_if_its_time_is_over() -> None:
    disk, changelog, _ = _states()
    logged, _ = state.rebuilt(SPEC, changelog)
    rows = [key for key, _ in disk.range(*_IDS)]
    for store in (logged, disk):
        about = Overlay(store, SPEC.pipeline)
        put_purged(about.view(ABOUT), 1)
        about.commit({})
    logged.write([], {rows[0]: None})
    assert list(state.row_problems(CASE, logged, disk)) == []
    logged.write([], {rows[-7]: None})
    assert len(list(state.row_problems(CASE, logged, disk))) == 1


def test_a_state_that_forgot_something_goes_on_otherwise_than_the_oracle() -> None:
    disk, _, source = _states()
    latest = source[-1].timestamp_ms
    follow_up = [
        record._replace(offset=len(source) + count, timestamp_ms=latest)
        for count, record in enumerate(source[-100:])
    ]
    whole = [*source, *follow_up]
    answer = answers_of(SPEC, Readings({RAW: Topic({0: whole}, 0)}, []), 1)[HOP.name, 0]
    states = state.PartitionStates(HOP, 0, len(source), {"on disk": disk})
    assert list(state.going_on_problems(SPEC, states, whole, answer)) == []
    disk.write([_IDS], {})
    assert list(state.going_on_problems(SPEC, states, whole, answer)) != []


def _between() -> tuple[list[Leaving], list[Record]]:
    """The output of a first hop, and its order in two partitions behind it."""
    leaving = [itself(record) for record in _source(300)]
    ids: dict[bytes | None, int] = {None: 0}
    between = []
    for offset, one in enumerate(leaving):
        named = [value for name, value in one.headers if name == "id"]
        home = ids.setdefault(named[-1] if named else None, len(ids) % 2)
        between.append(Record(*one[:4], "between", home, offset))
    return leaving, between


def test_between_two_hops_ids_keep_together_and_partitions_in_order() -> None:
    leaving, between = _between()
    assert list(order_problems(leaving, between)) == []
    assert list(order_problems(leaving, [between[1], between[0], *between[2:]])) != []
    moved = [record._replace(partition=1 - record.partition) for record in between[-20:]]
    assert list(order_problems(leaving, [*between[:-20], *moved])) != []


def test_every_id_leaves_once() -> None:
    leaving, between = _between()
    seen: set[bytes | None] = set()
    cleaned = []
    for record in between:
        named = [value for name, value in record.headers if name == "id"]
        if not named or named[-1] not in seen:
            cleaned.append(record)
            seen.update(named[-1:])
    assert list(id_problems(leaving, cleaned)) == []
    assert list(id_problems(leaving, cleaned[1:])) != []
    assert list(id_problems(leaving, [*cleaned, cleaned[0]])) != []
    dropped = next(record for record in between if record not in cleaned)
    assert list(id_problems(leaving, [*cleaned, dropped])) != []
