"""`kafka-consumer-groups` describes a group of ours, which has a protocol of its own."""

from __future__ import annotations

import pytest

from headrace.services.kafka.coordinator import PROTOCOL
from tests.kafka.tools import describe_group
from tests.runtime.expected import some_records
from tests.runtime.sidecar import MakePipeline, wait_until

PARTITIONS = 4
RECORDS = 200
MORE = 12


@pytest.mark.long("clusters", why="it starts Kafka's own tool")
def test_kafkas_own_tool_shows_members_partitions_and_lag(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=PARTITIONS)
    pipeline.produce(some_records(RECORDS, seed=1, partitions=PARTITIONS))
    # They are frozen while the tool looks, and must not be taken for dead.
    instances = [pipeline.start(name, session_timeout="5m") for name in ("one", "two")]
    wait_until(
        lambda: all(one.log.count("] running ") >= 2 for one in instances), "tasks", instances
    )
    pipeline.wait_until_done()
    for instance in instances:
        instance.pause()
    pipeline.produce(some_records(MORE, seed=2, partitions=PARTITIONS))

    shown = describe_group(pipeline.servers, pipeline.name)
    # A changelog is followed outside of the group; a lag of it would mean nothing here.
    assert {line["TOPIC"] for line in shown} == {pipeline.source}
    assert sorted(int(line["PARTITION"]) for line in shown) == list(range(PARTITIONS))
    for line in shown:
        assert line["GROUP"] == pipeline.name
        assert int(line["CURRENT-OFFSET"]) == RECORDS // PARTITIONS
        assert int(line["LAG"]) == MORE // PARTITIONS
        assert line["CLIENT-ID"].startswith("headrace-")
        assert line["HOST"] == "/127.0.0.1"
    runs = [sum(line["CONSUMER-ID"].startswith(name) for line in shown) for name in ("one", "two")]
    assert runs == [2, 2]

    (state,) = describe_group(pipeline.servers, pipeline.name, "--state")
    assert state["ASSIGNMENT-STRATEGY"] == PROTOCOL
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
    for instance in instances:
        instance.resume()
    assert [instance.stop() for instance in instances] == [0, 0]
