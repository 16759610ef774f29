"""Topics and the settings that keep their records."""

from __future__ import annotations

import pytest

from headrace.contracts.pipeline import PipelineSpec, Sink, Source
from headrace.contracts.policies import DeduplicatePolicy, FilterPolicy, ReorderPolicy
from headrace.contracts.topics import DECISIONS_RETENTION_MS, decisions_topic

SPEC = PipelineSpec(
    pipeline="clicks",
    source=Source(topic="clicks.raw"),
    operators=(
        ReorderPolicy(grace_ms=0),
        FilterPolicy(where='key != "x"'),
        ReorderPolicy(name="again", grace_ms=5, late="topic"),
        DeduplicatePolicy(by="id", id="value.id", interval_ms=10, store="ids"),
    ),
    sink=Sink(topic="clicks.cleaned"),
)


def test_a_pipeline_makes_what_its_operators_need() -> None:
    assert [(topic.name, topic.role) for topic in SPEC.topics()] == [
        ("clicks.cleaned", "cleaned"),
        ("clicks.cleaned.progress", "progress"),
        ("clicks.cleaned.late", "late"),
        ("clicks.cleaned.dead", "dead"),
        ("clicks-state-changelog", "changelog"),
        ("clicks-deduplicate-repartition", "repartition"),
        ("clicks-deduplicate-changelog", "changelog"),
    ]


@pytest.mark.parametrize("topic", SPEC.topics(), ids=lambda topic: topic.role)
def test_age_deletes_no_event_time(topic: object) -> None:
    settings = topic.settings()  # type: ignore[attr-defined]
    assert settings["message.timestamp.type"] == "CreateTime"
    assert settings["message.timestamp.after.max.ms"] == str(2**63 - 1)
    if "delete" in settings["cleanup.policy"]:
        assert settings["retention.ms"] == "-1"
    else:
        assert settings["cleanup.policy"] == "compact"
        assert "retention.ms" not in settings


def test_decisions_are_kept_for_a_week_from_when_they_were_written() -> None:
    topic = decisions_topic("clicks.cleaned")
    assert topic.name == "clicks.cleaned.decisions"
    assert topic.settings() == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(DECISIONS_RETENTION_MS),
    }


def test_no_late_topic_where_nothing_is_sent_to_it() -> None:
    spec = PipelineSpec(
        pipeline="clicks",
        source=Source(topic="clicks.raw"),
        operators=(ReorderPolicy(grace_ms=5),),
        sink=Sink(topic="clicks.cleaned"),
    )
    assert "late" not in {topic.role for topic in spec.topics()}


def test_brokers_free_purged_topics_by_small_segments() -> None:
    sizes = {topic.role: topic.settings().get("segment.bytes") for topic in SPEC.topics()}
    purged = {role: size for role, size in sizes.items() if size is not None}
    assert purged == dict.fromkeys(("changelog", "repartition"), str(64 << 20))
