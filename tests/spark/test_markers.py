"""Markers are read as soon as their topic is made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace.contracts.errors import KafkaRefused, StateLayoutNewer
from headrace.spark_jobs.write import markers
from headrace.spark_jobs.write.markers import Marker, last_marker, marker_row
from headrace.spark_jobs.write.topics import ensure_markers
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka


class Early(Consumer):
    """A client whose first question comes before the broker has made the partition's log."""

    code = KafkaError.NOT_LEADER_FOR_PARTITION
    left = 1

    def get_watermark_offsets(self, *place: Any, **how: Any) -> tuple[int, int]:
        """Refuse once."""
        if Early.left > 0:
            Early.left -= 1
            raise KafkaException(KafkaError(Early.code))
        start, end = super().get_watermark_offsets(*place, **how)
        return start, end


@pytest.fixture
def topic(kafka: SharedKafka, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a topic of markers, about which the first question is early."""
    topic = f"{fresh_name('early')}.batches"
    ensure_markers({"bootstrap.servers": kafka.bootstrap_servers}, topic, 1)
    monkeypatch.setattr(Early, "left", 1)
    monkeypatch.setattr(markers, "Consumer", Early)
    return topic


def test_a_partition_whose_log_is_not_made_yet_is_asked_again(
    kafka: SharedKafka, topic: str
) -> None:
    assert last_marker({"bootstrap.servers": kafka.bootstrap_servers}, topic, 0) is None
    assert Early.left == 0


def test_any_other_refusal_is_a_sentence(
    kafka: SharedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Early, "code", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaRefused, match=f"^the markers in `{topic}` cannot be read: "):
        last_marker({"bootstrap.servers": kafka.bootstrap_servers}, topic, 0)


def test_a_marker_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, value = marker_row(0, Marker("id", 3, 1))
    client = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
    monkeypatch.setattr(markers, "ask_until_known", lambda *_: (0, 1))
    monkeypatch.setattr(markers, "_last_value", lambda *_: value)
    assert last_marker(client, "priced.batches", 0) == Marker("id", 3, 1)
    newer = json.dumps({**json.loads(value), "sealed": True})
    monkeypatch.setattr(markers, "_last_value", lambda *_: newer)
    sentence = "^the topic `priced.batches` has a marker that a newer headrace wrote, with the f"
    with pytest.raises(StateLayoutNewer, match=sentence):
        last_marker(client, "priced.batches", 0)
