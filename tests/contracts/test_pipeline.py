"""Pipelines as objects: names, defaults, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headrace.contracts.pipeline import PipelineSpec, Sink, Source, Topic
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    FilterPolicy,
    ReorderPolicy,
    Session,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
)

HOUR = Tumbling(size_ms=3_600_000, grace_ms=600_000)
REORDER: dict[str, Any] = {"reorder": {"grace": "30s"}}
FINAL: dict[str, Any] = {"suppress": {"until": "window-closes"}}
HOURLY = {"kind": "tumbling", "size": "1h", "grace": "10m"}
DAILY = {"kind": "tumbling", "size": "1d", "grace": "10m"}


def spec(*operators: AnyOperator, **options: Any) -> PipelineSpec:
    """A pipeline with these operators."""
    return PipelineSpec(
        pipeline="clicks",
        source=Source(topic="clicks.raw"),
        operators=operators,
        sink=Sink(topic="clicks.cleaned"),
        **options,
    )


def written(*operators: object, **options: object) -> dict[str, object]:
    """The same as a file says it."""
    document = {
        "pipeline": "clicks",
        "source": {"topic": "clicks.raw"},
        "operators": list(operators),
        "sink": {"topic": "clicks.cleaned"},
    }
    return document | options


def test_a_file_and_python_say_the_same() -> None:
    from_file = PipelineSpec.model_validate(
        written(
            {"reorder": {"grace": "30s", "buffer": {"records": 10, "when-full": "spill"}}},
            {"aggregate": {"function": "count", "window": HOURLY}},
            FINAL,
            {"filter": {"where": "value < 3"}},
        )
    )
    in_python = spec(
        ReorderPolicy.model_validate(
            {"grace_ms": 30_000, "buffer": {"records": 10, "when_full": "spill"}}
        ),
        AggregatePolicy(function="count", window=HOUR),
        SuppressPolicy(until="window-closes"),
        FilterPolicy(where="value < 3"),
    )
    assert from_file == in_python
    assert from_file.operators[2] == SuppressPolicy(
        name="suppress", store="suppress", until="window-closes", window=HOUR
    )


def test_a_written_pipeline_is_read_back() -> None:
    pipeline = spec(
        ReorderPolicy(grace_ms=30_000),
        DeduplicatePolicy(by="id", id="header.id", interval_ms=1),
        AggregatePolicy(function="sum", of="value.n", window=Session(gap_ms=1, grace_ms=2)),
        late=Topic(topic="too-late"),
    )
    document = pipeline.model_dump(mode="json", by_alias=True)
    assert document["operators"][0].keys() == {"reorder"}
    assert PipelineSpec.model_validate(document) == pipeline
    assert PipelineSpec.model_validate_json(pipeline.model_dump_json(by_alias=True)) == pipeline


def test_a_reorder_may_say_that_it_never_looks_at_the_clock() -> None:
    document = written({"reorder": {"grace": "30s", "idle": "never"}})
    assert PipelineSpec.model_validate(document) == PipelineSpec.model_validate(written(REORDER))


def test_names_come_from_kinds_and_stores_from_names() -> None:
    operators = spec(
        ReorderPolicy(grace_ms=1),
        DeduplicatePolicy(interval_ms=1, name="once"),
        TablePolicy(store="s"),
    ).operators
    names = [(policy.name, policy.store) for policy in operators]
    assert names == [("reorder", "reorder"), ("once", "once"), ("table", "s")]


def test_names_do_not_depend_on_the_place() -> None:
    alone = spec(DeduplicatePolicy(interval_ms=1))
    behind = spec(ReorderPolicy(grace_ms=1), DeduplicatePolicy(interval_ms=1))
    assert behind.operators[1] == alone.operators[0]


def test_late_and_dead_topics_follow_the_sink() -> None:
    pipeline = spec(ReorderPolicy(grace_ms=1))
    assert (pipeline.late.topic, pipeline.dead.topic) == (
        "clicks.cleaned.late",
        "clicks.cleaned.dead",
    )
    assert spec(ReorderPolicy(grace_ms=1), dead=Topic(topic="graves")).dead.topic == "graves"


def test_a_time_limit_needs_no_window() -> None:
    limit = SuppressPolicy(until="time-limit", limit_ms=5)
    pipeline = spec(AggregatePolicy(function="count", window=HOUR), limit)
    assert pipeline.operators[1] == limit.model_copy(
        update={"name": "suppress", "store": "suppress"}
    )


def test_each_suppress_has_the_window_of_the_aggregate_before_it() -> None:
    other = Tumbling(size_ms=5, grace_ms=0)
    windows = [HOUR, other]
    operators: list[AnyOperator] = []
    for number, window in enumerate(windows):
        operators.append(AggregatePolicy(function="count", window=window, name=f"count-{number}"))
        operators.append(SuppressPolicy(until="window-closes", name=f"final-{number}"))
    settled = spec(*operators).operators
    found = [policy.window for policy in settled if isinstance(policy, SuppressPolicy)]
    assert found == windows


def test_a_suppress_may_repeat_the_window_of_its_aggregate() -> None:
    spec(
        AggregatePolicy(function="count", window=HOUR),
        SuppressPolicy(until="window-closes", window=HOUR),
    )
    spec(SuppressPolicy(until="window-closes", window=HOUR))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (written(REORDER, REORDER), "two operators are called `reorder`.* `name: reorder-again`"),
        (
            written(REORDER, {"table": {"store": "reorder"}}),
            "the store `reorder` has an owner; give another `store`",
        ),
        (written(FINAL), "needs to know the window"),
        (
            written({"aggregate": {"function": "count"}}, FINAL),
            "`aggregate` before it makes none; give that one a `window`",
        ),
        (
            written(
                {"aggregate": {"function": "count", "window": HOURLY}},
                {"suppress": {"until": "window-closes", "window": DAILY}},
            ),
            "differs from that of `aggregate` before it, .*kind: tumbling, size: 1h, grace: 10m",
        ),
        (
            written({"suppress": {"until": "window-closes", "window": {"kind": "unlimited"}}}),
            "never closes, so nothing would ever leave",
        ),
        (
            written({"aggregate": {"function": "count", "window": {"kind": "unlimited"}}}, FINAL),
            "never closes, so nothing would ever leave",
        ),
        (
            written(
                {
                    "suppress": {
                        "until": "window-closes",
                        "window": HOURLY,
                        "buffer": {"records": 1, "when-full": "emit-early"},
                    }
                }
            ),
            "final results cannot be emitted early",
        ),
        (
            written({"distinct": {"window": {"kind": "sliding", "difference": 1, "grace": 1}}}),
            "stands in several sliding windows at once",
        ),
        (
            written({"distinct": {"window": {"kind": "unlimited"}}}),
            "no key could ever be forgotten",
        ),
        (
            written({"aggregate": {"function": "count", "of": "value.n"}}),
            "counts records, not what is in them; remove `of`",
        ),
        (
            written({"aggregate": {"function": "count", "retention": "1h"}}),
            "no window ever closes; remove it",
        ),
        (
            written(
                {
                    "aggregate": {
                        "function": "count",
                        "retention": "1h",
                        "window": {"kind": "unlimited"},
                    }
                }
            ),
            "no window ever closes; remove it",
        ),
        (
            written({"aggregate": {"function": "mine:longest", "of": "value.x"}}),
            "`mine:longest` is given the whole record, and not what `of` selects; remove `of`",
        ),
        (
            written({"suppress": {"until": "time-limit", "limit": "1s", "window": HOURLY}}),
            "counts from a record's own time, in whatever window it is; remove `window`",
        ),
        (
            written({"filter": {"where": "value.n == 1", "store": "kept"}}),
            "`filter` keeps no state, so it has no store; remove `store`",
        ),
        (
            written({"sample": {"every": 2, "store": "kept"}}),
            "`sample` keeps no state, so it has no store; remove `store`",
        ),
        (
            written({"aggregate": {"function": "count", "late": "topic"}}),
            "`late: topic` is for records whose windows are closed, and here no window ever closes",
        ),
        (
            written(
                {
                    "aggregate": {
                        "function": "count",
                        "late": "topic",
                        "window": {"kind": "unlimited"},
                    }
                }
            ),
            "no window ever closes; remove it",
        ),
        (
            written({"reorder": {"grace": "0s", "late": "topic"}}),
            "with `grace: 0s` every record leaves at once, .*; remove `late`, or give a longer",
        ),
        (
            written({"reorder": {"grace": 0, "buffer": {"records": 1, "when-full": "spill"}}}),
            "none is held; remove `buffer`",
        ),
        (written({"reorder": {"grace": 0, "idle": "5s"}}), "none is held; remove `idle`"),
        (written(REORDER, sink={"topic": "clicks.raw"}), "`clicks.raw` is the source already"),
        (written(REORDER, dead={"topic": "clicks.raw"}), "`clicks.raw` is the source already"),
        (
            written(REORDER, dead={"topic": "clicks.cleaned.late"}),
            "`clicks.cleaned.late` is the late topic already",
        ),
        (
            written(REORDER, source={"topic": "clicks-state-changelog"}),
            "would be a changelog topic that headrace makes, and is the source already",
        ),
        (
            written(REORDER, late={"topic": "clicks.cleaned.progress"}),
            "would be a progress topic that headrace makes, and is the late topic already",
        ),
        (
            written(REORDER, dead={"topic": "clicks.cleaned.decisions"}),
            "would be a decisions topic that headrace makes, and is the dead topic already",
        ),
    ],
)
def test_pipelines_that_cannot_work_are_refused(document: object, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        PipelineSpec.model_validate(document)


@pytest.mark.parametrize(
    ("window", "needed_ms"),
    [
        ({"kind": "tumbling", "size": 100, "grace": 7}, 107),
        ({"kind": "hopping", "size": 100, "advance": 10, "grace": 7}, 107),
        ({"kind": "session", "gap": 100, "grace": 7}, 107),
        ({"kind": "sliding", "difference": 100, "grace": 7}, 207),
    ],
)
def test_retention_covers_what_is_accepted(window: object, needed_ms: int) -> None:
    options = {"function": "count", "window": window, "retention": needed_ms}
    AggregatePolicy.model_validate(options)
    with pytest.raises(ValidationError, match=f"make it at least {needed_ms}ms"):
        AggregatePolicy.model_validate(options | {"retention": needed_ms - 1})


def test_a_late_topic_without_late_records_is_worth_a_thought() -> None:
    of_late = [ReorderPolicy(grace_ms=1), ReorderPolicy(grace_ms=1, late="topic")]
    first, second = (spec(one, late=Topic(topic="too-late")).warnings() for one in of_late)
    assert "No operator sends a record to `too-late`. Write `late: topic` into" in first[-1]
    assert not any("too-late" in sentence for sentence in second)
    # A pipeline in Python may write the topic out that it has by default.
    as_default = spec(of_late[0], late=Topic(topic="clicks.cleaned.late"))
    assert as_default.warnings() == spec(of_late[0]).warnings()


def test_a_skew_without_a_repartition_is_worth_a_thought() -> None:
    source = Source(topic="clicks.raw", max_skew_ms=1, max_future_ms=1)
    of_id = DeduplicatePolicy(by="id", id="header.id", interval_ms=1)
    first, second = (
        PipelineSpec(
            pipeline="clicks", source=source, operators=(one,), sink=Sink(topic="clicks.cleaned")
        ).warnings()
        for one in (ReorderPolicy(grace_ms=1), of_id)
    )
    (sentence,) = first
    assert sentence == (
        "`max-skew` holds partitions back before a `deduplicate: {by: id}` alone, and none is"
        " here. Remove it."
    )
    assert second == []


def test_all_problems_are_told_at_once() -> None:
    document = written(FINAL, REORDER, REORDER)
    with pytest.raises(ValidationError) as error:
        PipelineSpec.model_validate(document)
    places = [details["loc"] for details in error.value.errors()]
    assert ("operators", 0, "suppress") in places
    assert ("operators", 2, "reorder") in places


def test_a_pipeline_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec(ReorderPolicy(grace_ms=1)).pipeline = "other"  # type: ignore[misc]


def test_unlimited_windows_are_fine_without_final_results() -> None:
    spec(AggregatePolicy(function="count", window=Unlimited()))
