"""Where `max-delay` says how late a record can come, a quiet partition goes by the clock."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise

import pytest

from headrace.contracts.origin import (
    AT_END,
    AWAKE,
    IDLE,
    SourceTime,
    origin_header,
    times_headers,
)
from headrace.contracts.pipeline import PipelineSpec
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.runtime.input.survey import UNSEEN, Surveyed
from headrace.services.runtime.time.clock import Clock
from headrace.services.runtime.time.silence import Silence
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record
from tests.runtime.test_silence import BY_ID, DEDUPLICATE, of_partition

NOW_MS = 1_700_000_000_000
NOW_S = 1_000.0
END = 10


def now_ms() -> int:
    """The clock of those who produce."""
    return time.time_ns() // 1_000_000  # noqa: TID251 - what is tested goes by this very clock


def told_ms(pipeline: Pipeline, number: int) -> int:
    """How far a partition said last that it is."""
    said = of_partition(pipeline, number)
    return said[-1].progress_ms if said else -1


def is_past(pipeline: Pipeline, number: int, time_ms: int) -> bool:
    """Whether a partition has said that it is past a time."""
    return told_ms(pipeline, number) > time_ms


@pytest.mark.long("time", why="it waits for the clock")
def test_a_quiet_partition_goes_on_with_the_clock_step_by_step(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(DEDUPLICATE, partitions=2, source="max-delay: 2s")
    at_ms = now_ms()
    pipeline.produce([record(b"a", b"1", at_ms)])
    first = pipeline.start()
    pipeline.wait_for_cleaned(1)
    for number in (0, 1):
        what = f"progress of partition {number} behind the record"
        pipeline.wait_until(partial(is_past, pipeline, number, at_ms + 2_000), what)
    first.kill()
    before_ms = told_ms(pipeline, 0)
    pipeline.start("two")
    pipeline.wait_until(partial(is_past, pipeline, 0, before_ms), "progress of who took over")
    for number in (0, 1):
        rows = of_partition(pipeline, number)
        assert not any(row.is_idle for row in rows)
        # A successor repeats what its predecessor said last.
        told = dict.fromkeys(row.progress_ms for row in rows)
        steps_ms = [later_ms - earlier_ms for earlier_ms, later_ms in pairwise(told)]
        # The first row behind a record may come at any time; the clock's own are a second apart.
        assert all(step_ms >= 1_000 for step_ms in steps_ms[1 - number :])
        assert told_ms(pipeline, number) <= now_ms() - 2_000
    assert {row.cleaned_offset for row in of_partition(pipeline, 0)} == {0}


def test_held_records_leave_and_those_later_than_promised_are_late(
    make_pipeline: MakePipeline,
) -> None:
    reorder = "reorder: {grace: 1s, late: topic}"
    pipeline = make_pipeline(reorder, DEDUPLICATE, source="max-delay: 2s")
    at_ms = now_ms()
    pipeline.produce([record(b"b", b"2", at_ms), record(b"a", b"1", at_ms - 500)])
    sidecar = pipeline.start()
    cleaned = pipeline.wait_for_cleaned(2)
    assert [one.value for one in cleaned] == [b"1", b"2"]
    pipeline.produce([record(b"c", b"late", at_ms - 1)])
    pipeline.wait_until(lambda: len(pipeline.beside("late")) == 1, "the late record")
    sidecar.kill()
    # Stream time is state: who takes over has heard of no record, and knows it is late.
    pipeline.start("two", instance_id="one")
    pipeline.produce([record(b"d", b"late, too", at_ms)])
    pipeline.wait_until(lambda: len(pipeline.beside("late")) == 2, "another late record")


OPERATORS = {
    "reorder": ("reorder: {grace: 1s, late: topic}",),
    "windows": (
        "aggregate: {function: count, window: {kind: tumbling, size: 1s, grace: 1s}}",
        "suppress: {until: window-closes}",
    ),
}


@pytest.mark.long("time", why="it waits for the clock")
@pytest.mark.parametrize("behind", sorted(OPERATORS))
def test_behind_a_repartition_a_quiet_partition_is_waited_for_so_long(
    make_pipeline: MakePipeline, behind: str
) -> None:
    pipeline = make_pipeline(BY_ID, *OPERATORS[behind], partitions=3, source="max-delay: 3s")
    at_ms = now_ms()
    pipeline.produce([record(b"a", b"1", at_ms, partition=0), record(b"b", b"2", at_ms + 1)])
    pipeline.start()
    pipeline.start("two")
    cleaned = pipeline.wait_for_cleaned(2)
    # Two partitions are empty: they held it back until the clock had passed it by `max-delay`.
    assert now_ms() >= at_ms + 3_000
    assert {one[0][:1] for one in contents(cleaned) if one[0]} == {b"a", b"b"}
    assert not any(row.is_idle for row in pipeline.progress())


@pytest.mark.long("time", why="it waits for the clock")
def test_a_partition_that_is_idle_as_well_says_no_more(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(DEDUPLICATE, source="max-delay: 1s, idle: 6s")
    at_ms = now_ms()
    pipeline.produce([record(b"a", b"1", at_ms)])
    pipeline.start()
    pipeline.wait_for_cleaned(1)
    pipeline.wait_until(lambda: of_partition(pipeline, 0)[-1].is_idle, "an idle row")
    *by_the_clock, last = of_partition(pipeline, 0)
    assert not any(row.is_idle for row in by_the_clock)
    assert last.progress_ms > at_ms
    pipeline.produce([record(b"b", b"2", now_ms())])
    pipeline.wait_until(lambda: not of_partition(pipeline, 0)[-1].is_idle, "a row that ends it")
    assert len(of_partition(pipeline, 0)) == len(by_the_clock) + 2


def spec_of(
    source: dict[str, object], operators: list[dict[str, object]] | None = None
) -> PipelineSpec:
    """A pipeline with this source."""
    return PipelineSpec.model_validate(
        {
            "pipeline": "p",
            "source": {"topic": "raw", **source},
            "operators": operators or [{"deduplicate": {"by": "key", "interval": "10m"}}],
            "sink": {"topic": "cleaned"},
        }
    )


def moves_to_ms(
    surveyed: Surveyed, position: int, state: int = AWAKE, at_ms: int = -1
) -> int | None:
    """How far the source is by the clock, with a `max-delay` of a minute."""
    spec = spec_of({"max-delay": "1m"})
    chain = Chain(spec.hops()[0].operators, Overlay(MemoryStore(), "p").view)
    chain.advance(at_ms)
    return Clock(spec, lambda: surveyed).moves_to_ms(chain, position, state)


def surveyed(fetched: int = END, brought: int = END) -> Surveyed:
    """Answers of the broker and the consumer of this very moment."""
    return Surveyed(fetched, END, END, NOW_S, brought, NOW_MS)


def test_only_who_has_decided_all_that_there_is_goes_by_the_clock() -> None:
    assert moves_to_ms(surveyed(), END) == NOW_MS - 60_000
    assert moves_to_ms(surveyed(), END, AT_END) is not None
    assert moves_to_ms(UNSEEN, 0) is None
    assert moves_to_ms(surveyed(fetched=END - 1), END - 1) is None
    # Fetched and handed on, and still on its way to the task.
    assert moves_to_ms(surveyed(), END - 1) is None
    # Only markers stand behind the last record.
    assert moves_to_ms(surveyed(brought=END - 1), END - 1) is not None
    assert moves_to_ms(surveyed(), END, IDLE) is None


def test_an_answer_of_a_while_ago_counts_as_of_then_whatever_the_clocks_did_since() -> None:
    """A machine that slept has a clock that did not go on, and has asked nobody meanwhile."""
    ago = surveyed()._replace(at_ms=NOW_MS - 3_600_000)
    assert moves_to_ms(ago, END) == NOW_MS - 3_660_000


def test_the_clock_moves_by_a_tenth_of_the_delay() -> None:
    assert moves_to_ms(surveyed(), END, at_ms=NOW_MS - 60_000 - 5_000) is None
    assert moves_to_ms(surveyed(), END, at_ms=NOW_MS - 60_000 - 7_000) is not None
    assert moves_to_ms(surveyed(), END, at_ms=NOW_MS) is None


def test_no_time_is_guessed_where_the_clock_says_it() -> None:
    assert spec_of({}).source.idle_ms == 10_000
    assert spec_of({"max-delay": "1m"}).source.idle_ms is None
    both = spec_of({"max-delay": "1m", "idle": "30s"})
    assert both.source.idle_ms == 30_000
    (warning,) = (one for one in both.warnings() if "`idle`" in one)
    assert warning.startswith("A partition is idle after 30s (`idle`), and its records may take 1m")
    assert not any("(`idle`)" in one for one in spec_of({"max-delay": "1m"}).warnings())


def test_records_that_break_the_promise_are_counted() -> None:
    spec = spec_of({"max-delay": "1m"})
    chain = Chain(spec.hops()[0].operators, Overlay(MemoryStore(), "p").view)
    chain.advance(5_000)
    chain.process(Batch.of([record(b"a", b"1", 4_000)]))
    assert (chain.lateness.max_ms, chain.time_ms) == (1_000, 5_000)


HOLDING: dict[str, list[dict[str, object]]] = {
    "reorder": [{"reorder": {"grace": "1h"}}],
    "windows": [
        {
            "aggregate": {
                "function": "count",
                "window": {"kind": "tumbling", "size": "1h", "grace": "0s"},
            }
        },
        {"suppress": {"until": "window-closes"}},
    ],
}


@pytest.mark.parametrize("behind", sorted(HOLDING))
def test_a_place_whose_sources_are_idle_is_idle_though_it_holds_what_no_clock_lets_go(
    behind: str,
) -> None:
    spec = spec_of(
        {"max-delay": "1m", "idle": "10m"},
        [{"deduplicate": {"by": "id", "id": "key", "interval": "10m"}}, *HOLDING[behind]],
    )
    hop = spec.hops()[1]
    view_of = Overlay(MemoryStore(), "p").view
    chain = Chain(hop.operators, view_of, lanes=Lanes(view_of(ABOUT), [0]))
    silence = Silence(spec, hop, lambda _: True)
    came = record(b"a", b"1", 5_000)._replace(headers=(origin_header(0, 7, 5_000),))
    chain.process(Batch.of([came]))
    assert silence.state(chain) == AWAKE
    says_idle = times_headers([SourceTime(0, 70_000, IDLE)])
    chain.process(Batch.of([came._replace(key=None, value=None, headers=says_idle)]))
    assert sum(operator.counts.held for operator in chain.operators) == 1
    # Its sources write no row until they wake, so the clock gets no further here.
    assert moves_place_to_ms(spec, chain) is None
    assert silence.state(chain) == IDLE


def test_a_source_partition_before_a_repartition_is_idle_behind_what_the_clock_lets_go() -> None:
    operators: list[dict[str, object]] = [
        {"reorder": {"grace": "1h"}},
        {"deduplicate": {"by": "id", "id": "key", "interval": "10m"}},
    ]
    said = []
    sources: list[dict[str, object]] = [
        {"max-delay": "1m", "idle": "10s"},
        {"max-delay": "1m"},
        {"idle": "10s"},
    ]
    for source in sources:
        spec = spec_of(source, operators)
        hop = spec.hops()[0]
        chain = Chain(hop.operators, Overlay(MemoryStore(), "p").view)
        silence = Silence(spec, hop, lambda _: True)
        silence.begins(is_empty=True)
        chain.process(Batch.of([record(b"a", b"1", 5_000)]))
        holding = silence.state(chain)
        chain.advance(5_000 + 3_600_000)
        said.append((holding, silence.state(chain)))
    # At its end it goes on by the clock, and without one nothing would ever leave.
    assert said == [(AWAKE, IDLE), (AT_END, AT_END), (IDLE, IDLE)]


def moves_place_to_ms(spec: PipelineSpec, chain: Chain) -> int | None:
    """How far a place behind a repartition is by the clock, where nothing waits."""
    return Clock(spec, surveyed).moves_to_ms(chain, END, AWAKE)
