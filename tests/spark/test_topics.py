"""The topics of a job that writes to Kafka are made ready, and known, before its first row."""

from __future__ import annotations

from headrace.contracts.topics import cleaned_topic
from headrace.spark_jobs.write.topics import check_topics
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka


def test_the_largest_batch_of_a_topic_is_known_once_it_is_made(kafka: SharedKafka) -> None:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    topic = cleaned_topic(fresh_name("priced"))
    made, found = (check_topics(client, {topic: 1}) for _ in range(2))
    assert made.takes_bytes.keys() == {topic.name}
    assert made == found
