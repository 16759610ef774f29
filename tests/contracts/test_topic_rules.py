"""Each rule about a topic that is there already, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.topic_rules import Setting, findings, settings_to_make, source_warnings
from headrace.contracts.topics import (
    TopicSpec,
    changelog_topic,
    cleaned_topic,
    dead_topic,
    decisions_topic,
    late_topic,
    progress_topic,
    repartition_topic,
)

FOR_EVER = str((1 << 63) - 1)
DEFAULTS = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": FOR_EVER,
    "max.message.bytes": "1048588",
}
SOURCE = {name: Setting(value, chosen=False) for name, value in DEFAULTS.items()}
CLEANED, LATE, DEAD = cleaned_topic("c"), late_topic("l"), dead_topic("d")
PROGRESS, DECISIONS = progress_topic("c"), decisions_topic("c")
CHANGELOG, REPARTITION = changelog_topic("p", "state"), repartition_topic("p", "o")
OUTSIDE, INTERNAL = (CLEANED, LATE, DEAD), (CHANGELOG, REPARTITION, PROGRESS)
EVERY = (*OUTSIDE, *INTERNAL, DECISIONS)


def _judge(
    topic: TopicSpec,
    changed: dict[str, str],
    *,
    chosen: bool = True,
    max_future_ms: int | None = None,
    accepts_retention: bool = False,
) -> list[tuple[str, str]]:
    """Return verdict and reason for a topic as we make it, but for some settings."""
    found = SOURCE | {
        name: Setting(value, chosen=True) for name, value in settings_to_make(topic, SOURCE).items()
    }
    found |= {name: Setting(value, chosen) for name, value in changed.items()}
    return [
        ("refused" if finding.refused else "warned", finding.sentence)
        for finding in findings(
            topic, found, SOURCE, max_future_ms, accepts_retention=accepts_retention
        )
    ]


def _verdicts(topic: TopicSpec, changed: dict[str, str], *, chosen: bool = True) -> list[str]:
    return [verdict for verdict, _ in _judge(topic, changed, chosen=chosen)]


@pytest.mark.parametrize("topic", EVERY, ids=lambda topic: topic.role)
def test_topics_that_we_make_satisfy_our_rules(topic: TopicSpec) -> None:
    assert _judge(topic, {}) == []


AGE = {"cleanup.policy": "delete", "retention.ms": "60000"}
SIZE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000"}
BOTH = {"cleanup.policy": "compact,delete", "retention.ms": "60000"}


@pytest.mark.parametrize("bound", [AGE, SIZE], ids=["age", "size"])
def test_deletion_is_refused_unless_somebody_asked_for_it(bound: dict[str, str]) -> None:
    for topic in INTERNAL:
        for chosen in (True, False):
            assert "refused" in _verdicts(topic, bound, chosen=chosen)
    for topic in OUTSIDE:
        assert _verdicts(topic, bound, chosen=True) == ["warned"]
        assert _verdicts(topic, bound, chosen=False) == ["refused"]
    assert _verdicts(DECISIONS, bound) == []


@pytest.mark.parametrize("bound", [AGE, SIZE], ids=["age", "size"])
def test_a_user_who_accepts_the_brokers_default_is_warned(bound: dict[str, str]) -> None:
    for topic in OUTSIDE:
        ((verdict, _),) = _judge(topic, bound, chosen=False, accepts_retention=True)
        assert verdict == "warned"
    for topic in INTERNAL:
        judged = _judge(topic, bound, chosen=False, accepts_retention=True)
        assert "refused" in [verdict for verdict, _ in judged]


def test_a_changelog_that_forgets_deletions_before_a_copy_is_distrusted_is_refused() -> None:
    ((verdict, sentence),) = _judge(CHANGELOG, {"delete.retention.ms": "3600000"})
    assert verdict == "refused"
    assert "forgets after 1h what was deleted" in sentence
    assert sentence.endswith("set its delete.retention.ms to 86400000")
    assert _judge(CHANGELOG, {"delete.retention.ms": "86400001"}) == []


def test_a_changelog_that_deletes_by_age_as_well_as_compacts_is_refused() -> None:
    ((verdict, sentence),) = _judge(CHANGELOG, BOTH)
    assert verdict == "refused"
    assert sentence.endswith("set its retention.ms to -1")


def test_a_changelog_that_nobody_may_purge_is_warned_about() -> None:
    ((verdict, sentence),) = _judge(CHANGELOG, {"cleanup.policy": "compact"})
    assert verdict == "warned"
    assert sentence.endswith(
        "set its cleanup.policy to compact,delete, and its retention.ms and retention.bytes to -1"
    )


def test_a_changelog_without_compaction_is_only_slow() -> None:
    for topic in (CHANGELOG, PROGRESS):
        grows = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        assert _verdicts(topic, grows) == ["warned"]


def test_compaction_is_for_cleaned_topics_of_those_who_ask_for_it() -> None:
    compact = {"cleanup.policy": "compact"}
    assert _verdicts(CLEANED, compact, chosen=True) == ["warned"]
    assert _verdicts(CLEANED, compact, chosen=False) == ["refused"]
    for topic in (LATE, DEAD, REPARTITION):
        assert _verdicts(topic, compact, chosen=True) == ["refused"]


def test_the_brokers_time_is_refused_where_event_time_is_carried() -> None:
    replaced = {"message.timestamp.type": "LogAppendTime"}
    for topic in (*OUTSIDE, REPARTITION):
        assert _verdicts(topic, replaced) == ["refused"]
    for topic in (CHANGELOG, PROGRESS, DECISIONS):
        assert _verdicts(topic, replaced) == []


def test_times_that_the_broker_would_refuse_are_warned_about() -> None:
    hour, day = {"message.timestamp.after.max.ms": "3600000"}, 86_400_000
    for topic in (*OUTSIDE, REPARTITION):
        ((verdict, sentence),) = _judge(topic, hour)
        assert verdict == "warned"
        assert "more than 1h ahead of the broker's clock" in sentence
        assert _verdicts(topic, {"message.timestamp.before.max.ms": "1000"}) == ["warned"]
    # Within `max-future` nothing is further ahead, but for what died of just that.
    for topic in (CLEANED, LATE, REPARTITION):
        assert _judge(topic, hour, max_future_ms=3_600_000) == []
        assert len(_judge(topic, hour, max_future_ms=day)) == 1
    assert len(_judge(DEAD, hour, max_future_ms=3_600_000)) == 1


def test_brokers_without_bounds_on_times_have_nothing_to_warn_about() -> None:
    found = {
        name: one for name, one in SOURCE.items() if not name.startswith("message.timestamp.a")
    }
    found |= {"retention.ms": Setting("-1", chosen=True)}
    del found["message.timestamp.before.max.ms"]
    assert list(findings(CLEANED, found, SOURCE, None)) == []


def test_smaller_records_than_in_the_source_are_warned_about() -> None:
    for topic in (*OUTSIDE, *INTERNAL):
        assert _verdicts(topic, {"max.message.bytes": "1048587"}) == ["warned"]


def test_an_age_that_nobody_reaches_deletes_nothing() -> None:
    assert _judge(CLEANED, {"retention.ms": FOR_EVER}) == []


def _source_warnings(timestamp: str = "record", **changed: str) -> list[str]:
    spec = PipelineSpec.model_validate(
        {
            "pipeline": "p",
            "source": {"topic": "raw", "timestamp": timestamp},
            "operators": [{"deduplicate": {"interval": "1h"}}],
            "sink": {"topic": "c"},
        }
    )
    kept = {"retention.ms": "-1"} | {name.replace("_", "."): to for name, to in changed.items()}
    found = SOURCE | {name: Setting(value, chosen=True) for name, value in kept.items()}
    return list(source_warnings(spec, found))


def test_a_source_is_never_refused_but_what_it_loses_is_said() -> None:
    assert _source_warnings() == []
    assert "older than 1m" in _source_warnings(retention_ms="60000")[0]
    assert "beyond 5000 bytes a partition" in _source_warnings(retention_bytes="5000")[0]
    assert "is compacted" in _source_warnings(cleanup_policy="compact")[0]
    assert len(_source_warnings(cleanup_policy="compact, delete", retention_ms="1")) == 2
    broker = {"message_timestamp_type": "LogAppendTime"}
    assert "carries the brokers' time" in _source_warnings(**broker)[0]
    assert _source_warnings(timestamp="value.at", **broker) == []


def test_made_topics_take_the_sources_records_and_what_is_written_around_them() -> None:
    larger = SOURCE | {"max.message.bytes": Setting("9000000", chosen=True)}
    assert settings_to_make(DEAD, larger)["max.message.bytes"] == str(9_000_000 + (64 << 10))
    assert settings_to_make(DEAD, larger)["retention.bytes"] == "-1"
    assert settings_to_make(CHANGELOG, larger)["retention.bytes"] == "-1"
    assert "retention.bytes" not in settings_to_make(PROGRESS, larger)
    assert replace(DEAD, name="x").settings().items() <= settings_to_make(DEAD, larger).items()


def test_made_topics_take_no_more_than_a_broker_can_be_told() -> None:
    most = str((1 << 31) - 1)
    largest = SOURCE | {"max.message.bytes": Setting(most, chosen=True)}
    assert settings_to_make(DEAD, largest)["max.message.bytes"] == most
