"""`headrace.testing` shows what the operators do, whatever happens between."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given

from headrace import Pipeline, Record
from headrace.contracts.errors import ExtraMissing
from headrace.testing import (
    Event,
    Input,
    check,
    check_any_cut,
    check_conservation,
    run,
    shown,
)
from headrace.testing.strategies import streams
from tests.cli.test_examples import PIPELINES
from tests.testing.functions import Longest, is_wanted

CLICKS = (
    Pipeline("clicks")
    .source("clicks.raw", max_future="1h")
    .reorder(grace="10s", late="topic", idle="5s")
    .deduplicate(by="key+id", id="value.id", interval="10m")
    .to("clicks.cleaned")
)
BY_ID = Pipeline("ids").source("ids.raw").deduplicate(by="id", id="value.id", interval="10m")
ORDERED_BY_ID = (
    Pipeline("ids")
    .source("ids.raw")
    .reorder(grace="30s")
    .deduplicate(by="id", id="value.id", interval="10m")
    .aggregate(function="count", window={"kind": "tumbling", "size": "1m", "grace": "10s"})
    .suppress(until="window-closes")
    .to("ids.cleaned")
)
TABLE = """
    # key  time  value
    a      20s   {"id":1}
    a      15s   {"id":2}
    a      12s   {"id":1}
    a      9s    {"id":3}
    a      5h    {"id":4}
    a      40s   nonsense
    a      60s   {"id":5}
"""


def test_everything_that_leaves_is_there() -> None:
    result = run(CLICKS, TABLE)
    assert shown(result.cleaned) == ['a@12s={"id":1}', 'a@15s={"id":2}']
    assert result.cleaned[1][4:] == ("clicks.cleaned", 0, 1)
    assert shown(result.late) == ['a@9s={"id":3}']
    assert [(letter.operator, letter.reason) for letter in result.dead] == [
        ("intake", "future-timestamp"),
        ("deduplicate", "undecodable"),
    ]
    assert result.counts["held"] == 1
    assert result.counts["dropped duplicate"] == 1
    progress = result.progress[0]
    assert (progress.progress_ms, progress.stream_time_ms) == (50_000, 60_000)
    assert (progress.source_offset, progress.cleaned_offset) == (7, 1)
    said = {(one.operator, one.verdict, one.reason) for one in result.decisions}
    assert ("reorder", "late", "past-grace") in said
    assert ("deduplicate", "dropped", "duplicate") in said
    check_conservation(result)


def test_records_may_be_python() -> None:
    rows: list[Input] = [
        {"key": "a", "time": "20s", "value": b'{"id":1}'},
        Record(b"a", b'{"id":2}', 15_000, (), "anywhere", 0, None),
        Event("crash"),
        {"key": "a", "time": 12_000, "value": '{"id":3}', "headers": [("h", "1")]},
        Event("idle"),
    ]
    result = run(CLICKS, rows)
    assert shown(result.cleaned) == ['a@12s={"id":3}', 'a@15s={"id":2}', 'a@20s={"id":1}']
    assert result.cleaned[0].headers == (("h", b"1"),)
    assert result.progress[0].is_idle


def test_a_crash_is_seen_by_nobody() -> None:
    lines, expected = TABLE.strip().splitlines(), run(CLICKS, TABLE)
    for event in ("(crash)", "(commit)\n(crash)", "(restart)", "(rebalance)", "(duplicate 2)"):
        for place in range(2, len(lines) + 1):
            broken = "\n".join([*lines[:place], event, *lines[place:]])
            result = run(CLICKS, broken)
            assert shown(result.cleaned) == shown(expected.cleaned), broken
            assert result.progress == expected.progress, broken
            check_conservation(result)


@pytest.mark.parametrize("what", ["restart", "rebalance", "crash"])
def test_stream_time_comes_back(what: Literal["restart", "rebalance", "crash"]) -> None:
    kept = Pipeline("kept").source("raw").filter(where='key != "x"').to("cleaned")
    rows: list[Input] = [{"time": "60s"}, Event("commit"), Event(what), {"time": "50s"}]
    progress = run(kept, rows).progress[0]
    assert (progress.progress_ms, progress.stream_time_ms) == (60_000, 60_000)


def test_records_that_are_fetched_again_are_turned_away() -> None:
    result = run(CLICKS, f"{TABLE}(duplicate 3)\n")
    assert result.counts["turned away"] == 3
    assert result.counts["taken"] == 7


def test_a_crash_reads_again() -> None:
    told: list[int] = []
    CALLS.clear()  # other tests of this process run it, too
    before = run(COUNTING, [*ONE_AND_TWO, Event("crash")])
    told.append(len(before.cleaned))
    assert told == [2]
    assert CALLS == [b"1", b"2", b"1", b"2"]


CALLS: list[bytes | None] = []


def counted(record: Record) -> bool:
    """Remember what it was asked."""
    CALLS.append(record.value)
    return True


COUNTING = Pipeline("counting").source("raw").filter(where=counted).to("cleaned")
ONE_AND_TWO: list[Input] = [{"value": "1"}, {"value": "2"}]


def test_a_record_that_a_function_fails_on_is_dead_and_others_go_on() -> None:
    pipeline = Pipeline("wanted").source("raw").filter(where=is_wanted)
    rows: list[Input] = [{"value": "1"}, {"value": None}, {"value": "unwanted"}, {"value": "2"}]
    result = run(pipeline.to("cleaned"), rows)
    assert shown(result.cleaned) == ["null@0ms=1", "null@0ms=2"]
    assert [(letter.reason, letter.exception) for letter in result.dead] == [
        ("failed", "builtins.AssertionError")
    ]
    check_conservation(result)
    stopped = run(pipeline.to("cleaned", on_failure="stop"), rows)
    assert shown(stopped.cleaned) == ["null@0ms=1"]
    assert "`filter` failed on a record" in str(stopped.failure)


def test_records_of_one_id_meet_from_all_partitions() -> None:
    check(
        BY_ID.to("ids.cleaned"),
        """
        # partition  key  time  value     -> leaves
        0            a    20s   {"id":1}  -> a@20s={"id":1}
        2            b    15s   {"id":1}  ->
        1            c    16s   {"id":2}  -> c@16s={"id":2}
        (crash)                           ->
        (rebalance)                       ->
        0            d    21s   {"id":2}  ->
        2            e    22s   null      -> e@22s=null
        """,
    )


def test_a_partition_that_is_idle_is_not_waited_for() -> None:
    check(
        BY_ID.reorder(grace="10s").to("ids.cleaned"),
        """
        # partition  key  time  value     -> leaves
        0            a    20s   {"id":1}  ->
        1            b    25s   {"id":2}  ->
        0            a    3m    {"id":3}  ->                                     partition 1 waits
        (wait 5s)                         ->
        0            a    4m    {"id":4}  ->
        (wait 5s)                         -> b@25s={"id":2} a@20s={"id":1} a@3m={"id":3}
        1            b    26s   {"id":5}  -> b@26s={"id":5}
        """,
    )


@pytest.mark.parametrize("what", ["restart", "rebalance", "crash"])
def test_a_partition_that_holds_records_is_idle_and_says_no_more_than_left(
    what: Literal["restart", "rebalance", "crash"],
) -> None:
    held = Pipeline("held").source("raw").reorder(grace="30s").to("cleaned")
    rows: list[Input] = [{"time": "1s"}, {"time": "40s"}, Event(what), Event("wait", 10_000)]
    idle = run(held, rows)
    assert (idle.counts["held"], idle.progress[0].is_idle) == (1, True)
    # Readers go on to 10.001 s at most, so the record that is held is on time for them.
    assert (idle.progress[0].progress_ms, idle.progress[0].stream_time_ms) == (10_000, 10_000)
    awake = run(held, [*rows, {"time": "50s"}])
    assert not awake.progress[0].is_idle
    assert awake.progress[0].stream_time_ms == 50_000


def test_records_that_the_clock_lets_go_leave_before_their_partition_is_idle() -> None:
    rows: list[Input] = [{"time": "1s"}, {"time": "40s"}, Event("wait", 10_000)]
    patient = Pipeline("patient").source("raw").reorder(grace="30s", idle="20s").to("cleaned")
    assert not run(patient, rows).progress[0].is_idle
    done = run(patient, [*rows, Event("wait", 10_000)])
    assert (done.counts["held"], done.progress[0].is_idle) == (0, True)
    assert done.progress[0].stream_time_ms == 40_000
    trusted = Pipeline("trusted").source("raw", max_delay="1s", idle="10s").reorder(grace="30s")
    assert not run(trusted.to("cleaned"), rows).progress[0].is_idle
    by_clock = [*rows, Event("clock", 70_000), Event("wait", 10_000)]
    assert run(trusted.to("cleaned"), by_clock).progress[0].is_idle


def test_a_place_whose_sources_are_idle_waits_for_no_clock() -> None:
    trusted = Pipeline("trusted").source("raw", max_delay="1m", idle="10s")
    by_id = trusted.deduplicate(by="id", id="value.id", interval="1h").reorder(grace="1h")
    done = run(by_id.to("cleaned"), [{"time": "40s", "value": {"id": 1}}, Event("wait", 10_000)])
    assert (done.counts["held"], done.progress[0].is_idle) == (1, True)


def test_a_record_that_the_clock_lets_go_is_waited_for_behind_a_repartition() -> None:
    trusted = Pipeline("trusted").source("raw", max_delay="1m", idle="10s").reorder(grace="30s")
    by_id = trusted.deduplicate(by="id", id="value.id", interval="1h").to("cleaned")
    check(
        by_id,
        """
        # partition  key  time  value     -> leaves
        0            a    40s   {"id":1}  ->
        1            b    50s   {"id":2}  ->
        1            b    3m    {"id":3}  ->
        (wait 10s)                        ->
        (clock 4m)                        -> a@40s={"id":1} b@50s={"id":2} b@3m={"id":3}
        """,
    )


def test_a_record_that_waited_before_a_repartition_is_late_for_nobody_behind_it() -> None:
    by_id = (
        Pipeline("sparse")
        .source("raw")
        .reorder(grace="30s")
        .deduplicate(by="id", id="value.id", interval="1h")
        .aggregate(
            function="count",
            window={"kind": "tumbling", "size": "10s", "grace": "0s"},
            late="topic",
        )
        .to("cleaned")
    )
    came = ["0 40s", "1 60s", "1 95s", "0 3m", "0 8m", "1 9m", "0 18m", "1 19m"]
    rows: list[Input] = [
        {"partition": int(one[0]), "key": "k", "time": one[2:], "value": {"id": number}}
        for number, one in zip((1, 2, 4, 3, 5, 6, 7, 8), came, strict=True)
    ]
    # Each partition is in order, and each record leaves its reorder by one that is far ahead.
    assert run(by_id, rows).late == ()


@given(streams(partitions=2))
def test_the_output_depends_on_no_cut_and_no_crash(records: list[Record]) -> None:
    for pipeline in (CLICKS, BY_ID.to("ids.cleaned"), ORDERED_BY_ID):
        check_any_cut(pipeline, records, partitions=2, seeds=range(3))


@given(streams())
def test_no_record_is_lost(records: list[Record]) -> None:
    sessions = (
        Pipeline("sessions")
        .source("raw")
        .aggregate(function=Longest, window={"kind": "session", "gap": "10s", "grace": "20s"})
    )
    tables = Pipeline("tables").source("raw").table().filter(where="value.amount >= 30")
    held = sessions.suppress(until="time-limit", limit="20s")
    for pipeline in (sessions, tables, held, tables.aggregate(function="count")):
        check_conservation(run(pipeline.to("cleaned"), records))


@pytest.mark.parametrize("file", sorted(PIPELINES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_runs(file: Path) -> None:
    check_conservation(run(file, TABLE))


def test_conservation_is_checked() -> None:
    whole = run(CLICKS, TABLE)
    less = replace(whole, cleaned=whole.cleaned[1:])
    with pytest.raises(AssertionError, match="7 records came or were made, and became: 1 cleaned"):
        check_conservation(less)


def test_a_function_that_remembers_is_found_by_cuts() -> None:
    CALLS.clear()
    forgetful = Pipeline("forgetful").source("raw").filter(where=every_other).to("cleaned")
    with pytest.raises(AssertionError, match="others are cleaned"):
        check_any_cut(forgetful, [{"value": str(number)} for number in range(30)])


def every_other(_: Record) -> bool:
    """Go by how often it was called, as no function may."""
    CALLS.append(None)
    return len(CALLS) % 2 == 0


@pytest.mark.parametrize("key", ["ann@example.com", "@ann", "a@b@1s"])
def test_a_key_may_have_an_at(key: str) -> None:
    table = f"""
        # key  time  value     -> leaves
        {key}  10s   {{"m":"b@1s=x"}}  -> {key}@10s={{"m":"b@1s=x"}}
    """
    check("pipeline: p\nsource: {topic: t}\noperators: [{table: {}}]\nsink: {topic: c}\n", table)


def test_a_table_that_is_not_true_says_why() -> None:
    with pytest.raises(AssertionError) as failed:
        check(
            CLICKS,
            """
            # key  time  value     -> leaves
            a      20s   {"id":1}  ->
            a      31s   {"id":1}  -> a@20s={"id":1} late:a@31s=null
            """,
        )
    assert str(failed.value).splitlines() == [
        "",
        'table:4: a 31s {"id":1}',
        '    expected  a@20s={"id":1} late:a@31s=null',
        '    left      a@20s={"id":1}',
        "    because   reorder: held, within-grace (stream_time_ms=31000, grace_ms=10000)",
    ]


def test_results_of_the_same_rows_are_equal() -> None:
    assert run(CLICKS, TABLE) == run(CLICKS, TABLE)
    assert "explain" not in repr(run(CLICKS, TABLE))


def test_without_the_extra_a_repartition_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        raise ModuleNotFoundError(name="aiokafka.partitioner")

    spec = BY_ID.to("ids.cleaned").spec
    monkeypatch.setattr("headrace.extras.import_module", absent)
    with pytest.raises(ExtraMissing) as refused:
        run(spec, TABLE)
    assert str(refused.value) == (
        "a test of `deduplicate: {by: id}` needs aiokafka, which is not installed;"
        " run: pip install 'headrace[testing]'"
    )


WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(["numpy", "pyarrow", "pandas", "pyspark", "sqlglot"]))
from headrace.testing import run, shown
print(shown(run("filter.yaml", "# key\\na").cleaned))
"""


def test_a_test_of_a_pipeline_needs_nothing_of_spark(tmp_path: Path) -> None:
    (tmp_path / "filter.yaml").write_text(
        "pipeline: few\nsource: {topic: raw}\n"
        "operators: [{reorder: {grace: 0s}}]\nsink: {topic: few.cleaned}\n"
    )
    command = [sys.executable, "-c", WITHOUT_SPARK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "['a@0ms=null']\n", done.stderr
