"""A broker that lets a client write, read and ask only so much a second: all goes on, slower."""

from __future__ import annotations

import pytest

from tests.kafka.fixtures import OwnKafka
from tests.kafka.tools import set_quotas
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline

pytestmark = pytest.mark.long("clusters", why="a quota makes it slow")

QUOTAS = {"producer_byte_rate": 200_000, "consumer_byte_rate": 2_000_000, "request_percentage": 30}


def test_a_backlog_larger_than_the_quotas_takes_its_time(
    kafka_own: OwnKafka, make_pipeline: MakePipeline
) -> None:
    """A transaction holds no more than the broker takes before it is over.

    A broker allows ten seconds' worth at once before it slows anybody down; whatever comes behind
    it would have to wait for longer than a transaction may last.
    """
    servers = kafka_own().bootstrap_servers
    pipeline = make_pipeline("reorder: {grace: 1s}", servers=servers)
    pipeline.produce(some_records(4_000, 1, value_bytes=1_000))
    set_quotas(servers, QUOTAS)
    sidecar = pipeline.start(transaction_timeout="3s")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
