"""A checkpoint accepts some changes of its job, and refuses others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.contracts.errors import StateOfOtherOptions, TopologyRefused
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.options import options_of
from headrace.spark_jobs.operators.stamp import input_option, keep_options
from headrace.spark_jobs.operators.topology import (
    LookUp,
    MapStep,
    Topic,
    Topology,
    WindowStep,
    verify,
)
from headrace.spark_jobs.queries.aggregates import Folded, Folds, Regrouped
from headrace.spark_jobs.versioned.tables import Plain, Versioned

PRICES = Topic("prices", 0, Versioned(60_000))
PRICED = LookUp("priced", PRICES, stream=1, grace_ms=10_000)


def _first(topology: Topology) -> dict[str, int]:
    numbers = {"buckets": 64}
    assert keep_options(numbers, options_of(topology)) == []
    return numbers


def test_the_same_job_goes_on_in_silence() -> None:
    numbers = _first(PRICED)
    assert keep_options(numbers, options_of(PRICED)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (replace(PRICED, grace_ms=20_000), "`grace_ms` was 10000 and is 20000 from now on"),
        (replace(PRICED, grace_ms=None), "`grace_ms` was 10000 and is not set from now on"),
        (replace(PRICED, table=Topic("prices", 0, Versioned(90_000))), "`retention_ms` was 60000"),
    ],
)
def test_a_change_that_state_can_follow_is_taken_and_said(changed: Topology, said: str) -> None:
    numbers = _first(PRICED)
    (sentence,) = keep_options(numbers, options_of(changed))
    assert said in sentence
    assert keep_options(numbers, options_of(changed)) == []


def test_a_longer_retention_brings_nothing_back() -> None:
    numbers = _first(PRICED) | {"prices:time_ms": 100_000}
    longer = replace(PRICED, table=Topic("prices", 0, Versioned(90_000)))
    keep_options(numbers, options_of(longer))
    assert numbers["prices:forgotten_ms"] == 40_000
    keep_options(numbers, options_of(PRICED))
    assert numbers["prices:forgotten_ms"] == 40_000
    numbers["prices:time_ms"] = 300_000
    keep_options(numbers, options_of(longer))
    assert numbers["prices:forgotten_ms"] == 240_000


def test_another_topic_is_refused_and_one_that_was_not_written_down_is_taken() -> None:
    older, renamed = _first(PRICED), {input_option(0, "prices"): 1, input_option(1, "renamed"): 1}
    inputs = {input_option(0, "prices"): 1, input_option(1, "orders"): 1}
    assert keep_options(older, options_of(PRICED) | inputs) == []
    assert keep_options(older, options_of(PRICED) | inputs) == []
    with pytest.raises(StateOfOtherOptions, match="input 1 of this job was the topic `orders`"):
        keep_options(older, options_of(PRICED) | renamed)


def test_windows_of_a_query_that_were_not_noted_as_such_are_taken() -> None:
    folds = Folds(1, (Folded("count", "number", counts_rows=True),))
    regroup = Regrouped((("account",),), (None,))
    windows = options_of(WindowStep("windows", 0, 10, regroup, folds, "payments"))
    older = {name: number for name, number in windows.items() if name != "option:windows:regroups"}
    numbers = dict(older)
    assert keep_options(numbers, windows) == []
    assert numbers == windows != older


def test_another_join_of_a_stream_is_taken() -> None:
    assert keep_options(_first(PRICED), options_of(replace(PRICED, join="left"))) != []


@pytest.mark.parametrize(
    "changed",
    [
        replace(PRICED, release="progress"),
        replace(PRICED, corrects=True),
        replace(PRICED, grace_ms=None, table=Topic("prices", 0, Plain())),
        replace(PRICED, table=Topic("other", 0, Versioned(60_000))),
        replace(PRICED, name="else"),
        replace(PRICED, table=MapStep("mapped", PRICES, lambda _, value: value)),
    ],
)
def test_a_change_that_would_lose_state_is_refused(changed: Topology) -> None:
    numbers = _first(PRICED)
    before = dict(numbers)
    with pytest.raises(StateOfOtherOptions, match="new checkpoint"):
        keep_options(numbers, options_of(changed))
    assert numbers == before


@pytest.mark.parametrize("changed", [Spread("key", tasks=8), Spread("partition")])
def test_state_stays_in_the_tasks_where_it_is(changed: Spread) -> None:
    numbers: dict[str, int] = {}
    keep_options(numbers, Spread("key", tasks=16).options())
    with pytest.raises(StateOfOtherOptions, match="`tasks` was `by-key` 16"):
        keep_options(numbers, changed.options())


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "progress", "reached", "task", "option"])
def test_names_that_state_could_not_tell_apart_are_refused(name: str) -> None:
    with pytest.raises(TopologyRefused, match="cannot be called"):
        verify(replace(PRICED, name=name))


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(TopologyRefused, match="two steps are called `prices`"):
        verify(replace(PRICED, name="prices"))
