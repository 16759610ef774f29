"""A record, an event or a table that cannot be run is a sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace import HeadraceError, Pipeline
from headrace.contracts.errors import PipelineInvalid, ScenarioInvalid
from headrace.contracts.record import Record
from headrace.contracts.time import COUNT_MAX
from headrace.testing import Event, Input, check, check_any_cut, run
from headrace.testing.running import AnyPipeline

CLICKS = Pipeline("clicks").source("clicks.raw").reorder(grace="10s").to("clicks.cleaned")
OWN: Any = Record(b"a", b"x", 1, (), "clicks.raw", 0, None)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("a 1s x", "table:1: `a 1s x` is not a head; begin with `# key time value`"),
        (
            "# key tim\na 1s",
            (
                "table:1: `tim` is not a column; known are `key`, `time`, `value`, `offset`,"
                " `partition`, `header.NAME`"
            ),
        ),
        (
            "# key time\na 1s x",
            (
                "table:2: `a 1s x` has 3 cells, and the head 2: key time; if a cell has spaces, put"
                " all between bars, such as `| a | 1s |`"
            ),
        ),
        (
            "# key time value\n| a | 1s |",
            "table:2: `| a | 1s |` has 2 cells, and the head 3: key time value",
        ),
        (
            "# time\n1sec",
            (
                "table:2: `1sec` is not a duration; write a number and a unit, such as 500ms, 30s,"
                " 10m, 1h30m or 7d"
            ),
        ),
        ("# key ->\na", "table:2: there is no `->` in `a`; put it behind the record"),
        (
            "# key ->\na -> a@0=null and b@0",
            (
                "table:2: `b@0` behind `->` is no record that leaves; write KEY@TIME=VALUE in front"
                " of the reason, and no `@` in the reason"
            ),
        ),
        (
            "# key time ->\na 1s -> a@1s=null\na 2s -> a=null",
            (
                "table:3: `a=null` behind `->` is no record that leaves; write KEY@TIME=VALUE in"
                " front of the reason, and no `@` in the reason"
            ),
        ),
        ("# key time key\na 1s b", "table:1: the column `key` stands here twice; remove one"),
        (
            "# key offset\na 9223372036854775807",
            "table:2: `9223372036854775807` is more than any offset or partition",
        ),
        (
            "# key\n\ud800",
            'table:2: `"\\ud800"` holds a character that stands in no text',
        ),
        (
            "# key\n(explode)",
            (
                "table:2: `(explode)` does not happen; known are `commit`, `restart`, `crash`,"
                " `rebalance`, `idle`, `wait`, `clock`, `duplicate`"
            ),
        ),
        ("# key\n(wait)", "table:2: `(wait)` has no time; write one, such as `(wait 30s)`"),
        (
            "# key\n(clock 30s)",
            (
                "`(clock)` moves time only where the source has `max-delay`, and this one has none;"
                " add it, or let the clock on the wall move on by `(wait 30s)`"
            ),
        ),
        ("# key\n(restart 5)", "table:2: `(restart)` takes no amount; remove `5`"),
        ("# key partition\na b", "table:2: `b` is not a whole number"),
        (f"# key partition\na {'9' * 5_000}", f"table:2: `{'9' * 57}...` is not a whole number"),
        (
            "# key ->\na -> a@5x=1",
            (
                "table:2: `5x` is not a duration; write a number and a unit, such as 500ms, 30s,"
                " 10m, 1h30m or 7d"
            ),
        ),
        (
            f"# time\n{'9' * 20}",
            (
                f"table:2: `{'9' * 20}` is not a duration; write a number and a unit, such as"
                " 500ms, 30s, 10m, 1h30m or 7d"
            ),
        ),
    ],
)
def test_a_table_that_cannot_be_read_is_a_sentence(table: str, sentence: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        run(CLICKS, table)
    assert str(refused.value) == sentence


def test_a_partition_too_many_is_a_sentence() -> None:
    with pytest.raises(HeadraceError, match="a partition that the source has not: it has 1"):
        run(CLICKS, [{"partition": 1}], partitions=1)


HUGE = 10**4_301
"""Python writes out no number of so many digits."""
UNSEEN = "int, which cannot be shown"


@pytest.mark.parametrize("count", [0, -1, "3", 2.5, True, 10**9, pytest.param(HUGE, id="huge")])
def test_partitions_that_no_test_can_have_are_a_sentence(count: int) -> None:
    refused = pytest.raises(ScenarioInvalid, match="is not a number of partitions; write at least")
    with refused:
        run(CLICKS, "# key\na", partitions=count)
    with refused:
        check(CLICKS, "# key ->\na ->", partitions=count)
    with refused:
        check_any_cut(CLICKS, "# key\na", partitions=count)
    with refused:
        run(hr.stream("clicks", "n INT", pipeline=None), "# key\na", partitions=count)


@pytest.mark.parametrize("about", [CLICKS, hr.stream("clicks", "n INT", pipeline=None)])
def test_a_partition_that_no_test_can_have_is_a_sentence(about: AnyPipeline) -> None:
    with pytest.raises(ScenarioInvalid, match="partition `1000000000`, and a test has at most"):
        run(about, "# key partition\na 1000000000")


def test_a_number_in_place_of_a_pipeline_or_of_records_is_a_sentence() -> None:
    with pytest.raises(PipelineInvalid, match="`5` is no pipeline; pass one in Python, the path"):
        run(5, "# key\na")  # type: ignore[call-overload]
    with pytest.raises(ScenarioInvalid, match="`null` is no table, and no list of records"):
        run(CLICKS, None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        ({"tme": 1}, "`tme` is not known of a record"),
        ({"topic": "clicks"}, "a record stands in `clicks`, and only `clicks.raw` is read here"),
        ("a 1s x", "`a 1s x` is no record; write a mapping"),
        ({"key": 7}, "the key `7` is neither text nor bytes, nor a mapping for JSON"),
        ({"value": [1]}, "the value `[1]` is neither text nor bytes, nor a mapping for JSON"),
        (
            {"value": {"at": timedelta(1)}},
            'the value `{"at": "1 day, 0:00:00"}` is no JSON: Object',
        ),
        ({"time": 3.5}, "the time `3.5` is neither text, such as `30s`, nor whole milliseconds"),
        ({"headers": {"trace": "x"}}, "the headers `{"),
        ({"headers": [("trace", 1)]}, "the header `1` is neither text nor bytes"),
        ({"key": "\ud800"}, 'the key `"\\ud800"` holds a character that stands in no text'),
        ({"partition": "1"}, "the partition `1` is no whole number of at least 0"),
        ({"offset": -1}, "the offset `-1` is no whole number of at least 0"),
        ({"offset": 1 << 63}, "the offset `9223372036854775808` is no whole number of"),
        ({"offset": (1 << 63) - 1}, "the offset `9223372036854775807` is no whole number of"),
        (OWN._replace(partition=-1), "the partition `-1` is no whole number of at least 0"),
        (OWN._replace(offset=-5), "the offset `-5` is no whole number of at least 0"),
        (OWN._replace(key="a"), "the key `a` of a `Record` is not bytes; write them"),
        (
            OWN._replace(value=1),
            "the value `1` of a `Record` is not bytes; write them, or a mapping",
        ),
        ({"partition": HUGE}, "the partition `int, which cannot be shown` is no whole number of"),
        ({"time": HUGE}, "the time `int, which cannot be shown` is neither text"),
        ({"key": HUGE}, "the key `int, which cannot be shown` is neither text nor bytes"),
        ({"value": {"n": HUGE}}, "the value `dict, which cannot be shown` is no JSON: Exceeds"),
        (Event("wait", HUGE), "the amount of `(wait)` `int, which cannot be shown` is no whole"),
        (Event("wait", "5s"), "the amount of `(wait)` `5s` is no whole number of at least 0"),  # type: ignore[arg-type]
        (Event("wait", -5), "the amount of `(wait)` `-5` is no whole number of at least 0"),
        (
            {"headers": [(1, "x")]},
            'the headers `[[1, "x"]]` are no list of pairs, a name and a value each',
        ),
        (Event("explode"), "`(explode)` does not happen; known are `commit`, `restart`"),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_is_none_is_a_sentence(one: Input, sentence: str) -> None:
    with pytest.raises(ScenarioInvalid) as refused:
        run(CLICKS, [one])
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda begun: begun.reorder(grace=HUGE),
            f"reorder(grace): `{UNSEEN}` is out of range; a duration is zero or more, at most",
        ),
        (
            lambda begun: begun.reorder(grace="1s", buffer={"bytes": HUGE}),
            f"reorder(buffer.bytes): `{UNSEEN}` is out of range; a size is zero to",
        ),
        (
            lambda begun: begun.reorder(grace="1s", buffer={"records": HUGE}),
            f"reorder(buffer.records): `{UNSEEN}` is more than {COUNT_MAX}; write less",
        ),
        (
            lambda begun: begun.sample(every=HUGE),
            f"sample(every): `{UNSEEN}` is more than {COUNT_MAX}; write less",
        ),
        (
            lambda begun: begun.reorder(grace=[HUGE]),
            "reorder(grace): `list, which cannot be shown` is not a duration; write a number",
        ),
        (
            lambda begun: begun.table().to(HUGE),
            f"to(topic): `{UNSEEN}` is not text; if it is meant as text, write it in quotes",
        ),
        (
            lambda begun: begun.table().to("b").plan(records_per_second=-5),
            f"plan(records_per_second): `-5` is not a whole number from 0 to {COUNT_MAX}; write",
        ),
        (
            lambda begun: begun.table().to("b").plan(records_per_second="1000"),
            f"plan(records_per_second): `1000` is not a whole number from 0 to {COUNT_MAX}; write",
        ),
    ],
)
def test_a_number_that_an_option_does_not_take_is_a_sentence(
    make: Callable[[Any], object], sentence: str
) -> None:
    with pytest.raises(PipelineInvalid) as refused:
        make(Pipeline("clicks").source("clicks.raw"))
    assert str(refused.value).startswith(f'Pipeline("clicks").{sentence}')


def test_no_record_is_fetched_again_if_nobody_asks_for_one() -> None:
    assert run(CLICKS, "# key\na\n(duplicate 0)").counts["turned away"] == 0
    assert run(CLICKS, "# key\na\n(duplicate)").counts["turned away"] == 1
