"""A record that a topic did not take, and takes since its limit was raised, is put back."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headrace.services.cli.replay_dead import replay_dead
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import MakePipeline, record

SOON = """
from headrace.services.kafka import limits

limits._ASK_AGAIN_S = 0.2


def is_wanted(record):
    return True
"""


def test_a_letter_goes_into_a_topic_whose_limit_was_raised(
    kafka: SharedKafka, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline("filter: {where: 'of_user:is_wanted'}")
    (pipeline.folder / "of_user.py").write_text(SOON)
    (cleaned,) = (topic for topic in pipeline.spec.topics() if topic.role == "cleaned")
    takes = {"max.message.bytes": "50000"}
    kafka.clients.make_topic(pipeline.sink, 1, cleaned.settings() | takes)
    sidecar = pipeline.start()
    large = bytes(100_000)
    pipeline.produce([record(b"a", large, 1_000)])
    pipeline.wait_until_done()
    assert [letter.value for letter in pipeline.beside("dead")] == [large]
    more = ConfigEntry("max.message.bytes", "200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, pipeline.sink, incremental_configs=[more])
    admin = AdminClient({"bootstrap.servers": pipeline.servers, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    sidecar.wait_for("a topic takes another size at once")
    # The command runs elsewhere, where the function is not.
    pipeline.write("filter: {where: 'value != null'}")
    replay_dead(pipeline.file, yes=True, bootstrap_servers=pipeline.servers)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [one.value for one in pipeline.cleaned()] == [large]
