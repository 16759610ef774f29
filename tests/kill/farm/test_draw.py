"""Seeds: each is a run of its own, and all together have everything in them."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.contracts.progress import Progress, progress_row
from headrace.contracts.record import Record
from tests.kill.expected import itself
from tests.kill.farm.carry import Outcome
from tests.kill.farm.changes import with_operators
from tests.kill.farm.draw import (
    AROUND_KINDS,
    BROKER_KINDS,
    NET_KINDS,
    STATE_KINDS,
    Blow,
    draw,
)
from tests.kill.farm.net import Fate
from tests.kill.farm.progress import progress_problems
from tests.kill.farm.results import add, kills_of, line_of, of_commit, read, table
from tests.kill.stream import FLUSH_MS, POISON_MS
from tests.properties.compose import wait_ms_of

SEEDS = range(400)


def test_the_same_seed_gives_the_same_run() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_all_seeds_together_have_everything_in_them() -> None:
    drawn = [draw(seed) for seed in SEEDS]
    blows = [one for run in drawn for one in run.strikes if isinstance(one, Blow)]
    operators = {policy.kind for run in drawn for policy in run.case.spec.operators}
    assert operators == {
        "deduplicate", "reorder", "suppress", "aggregate", "distinct", "table", "filter",
        "sample",
    }  # fmt: skip
    late = {
        policy.late
        for run in drawn
        for policy in run.case.spec.operators
        if policy.kind == "reorder"
    }
    assert late == {"forward", "drop", "topic"}
    kinds = {*BROKER_KINDS, *NET_KINDS, *STATE_KINDS, *AROUND_KINDS, "request"}
    assert {one.kind for one in blows} == kinds
    assert {one.fate for one in blows if one.kind == "request"} == set(Fate)
    assert {run.brokers for run in drawn} == {1, 3}
    assert {run.guarantee for run in drawn} == {"exactly-once", "at-least-once"}
    assert {run.codec for run in drawn} == {None, "gzip", "snappy", "lz4", "zstd"}
    assert {1, 12} <= {run.partitions for run in drawn}
    assert any(run.quiet for run in drawn)
    assert any(run.behind for run in drawn)


def test_each_change_of_options_is_one_that_state_can_follow() -> None:
    changes = 0
    for run in map(draw, SEEDS):
        before = run.case.spec
        for one in run.strikes:
            if isinstance(one, Blow) and one.kind == "options changed":
                changes += 1
                now = with_operators(before, one.operators)
                waits_ms = [
                    (wait_ms_of(old), wait_ms_of(new), old.kind == "deduplicate")
                    for old, new in zip(before.operators, now.operators, strict=True)
                ]
                assert sum(old_ms != new_ms for old_ms, new_ms, _ in waits_ms) in {1, 2}
                if len(waits_ms) == 3:
                    longer = [ids for old_ms, new_ms, ids in waits_ms if new_ms > old_ms]
                    assert not any(longer), "a suppress hides which doubtful ids left"
                before = now
    assert changes > len(SEEDS) / 2


def test_a_clock_makes_no_other_record_come_from_too_far_ahead() -> None:
    shifts_ms = {one.shift_ms for run in map(draw, SEEDS) for one in run.strikes
                 if isinstance(one, Blow) and one.kind.startswith("clock")}  # fmt: skip
    assert min(shifts_ms) < 0 < max(shifts_ms)
    assert 0 not in shifts_ms
    # Twelve months before the day on which this was written, and a year after a distant one.
    assert 1_795_000_000_000 + min(shifts_ms) > FLUSH_MS
    assert 2_500_000_000_000 + max(shifts_ms) < POISON_MS


def test_somebody_speaks_in_every_run() -> None:
    for seed in SEEDS:
        run = draw(seed)
        assert len(run.quiet) < run.partitions
        assert not set(run.quiet) & set(run.behind)


def test_every_broker_that_is_struck_is_there() -> None:
    for run in map(draw, SEEDS):
        for one in run.strikes:
            assert not isinstance(one, Blow) or one.broker < run.brokers


def test_a_record_on_time_that_is_earlier_than_promised_is_found() -> None:
    records = [Record(b"k", b"%d" % at, at, (), "c", 0, at) for at in (10, 20, 15)]
    cleaned = [one._replace(offset=offset) for offset, one in enumerate(records)]
    leaving = [itself(one) for one in records]
    key, value = progress_row(Progress(0, 18, 20, "raw", 2, 1))
    rows = [Record(key, value, 0, (), "p", 0, 0)]
    (problem,) = progress_problems(rows, cleaned, leaving, set())
    assert "promised 18" in problem
    assert not list(progress_problems(rows, cleaned, leaving, {15}))


def test_progress_that_goes_back_is_found() -> None:
    rows = []
    for offset, progress_ms in enumerate((18, 17)):
        key, value = progress_row(Progress(0, progress_ms, 20, "raw", 2, 1))
        rows.append(Record(key, value, 0, (), "p", 0, offset))
    (problem,) = progress_problems(rows, [], [], set())
    assert "went back from 18 to 17" in problem


def test_a_promise_binds_no_record_that_a_longer_grace_let_in() -> None:
    records = [Record(b"k", b"%d" % at, at, (), "c", 0, place) for place, at in
               enumerate((10, 20, 15, 12))]  # fmt: skip
    leaving = [itself(one) for one in records]
    rows = []
    for offset, (progress_ms, reached) in enumerate(((18, 2), (11, 4))):
        key, value = progress_row(Progress(0, progress_ms, 20, "raw", reached, reached - 1))
        rows.append(Record(key, value, 0, (), "p", 0, offset))
    assert len(list(progress_problems(rows, records, leaving, set()))) == 2
    assert not list(progress_problems(rows, records, leaving, set(), [2]))
    (problem,) = progress_problems(rows, records, leaving, set(), [3])
    assert "promised 18" in problem


def test_results_are_a_line_a_run_and_a_table_over_all(tmp_path: Path) -> None:
    results = tmp_path / "farm.jsonl"
    assert read(results) == []
    right = Outcome(draw(1), worker_kills=5, broker_strikes=2)
    wrong = Outcome(draw(2), worker_kills=1, problems=["1 lost\n  and more"])
    stuck = Outcome(draw(3), stuck="TimeoutError: in vain\nits log")
    for outcome in (right, wrong, stuck):
        evidence = tmp_path if outcome is not right else None
        add(results, line_of(outcome, evidence, "old" if outcome is right else "new"))
    lines = read(results)
    assert [json.dumps(line["verdict"]) for line in lines] == ['"right"', '"wrong"', '"stuck"']
    assert kills_of(lines) == 8
    assert [line["seed"] for line in of_commit(lines, "new")] == [2, 3]
    text = "\n".join(table(lines))
    assert "| all | 3 | 6 | 2 | 0 | 0 | 0 | 0 | 0 | 1 | 1 |" in text
    assert "| 2 | " in text
    assert "1 lost |" in text
    assert "in vain |" in text
