"""Brokers that are found by names and addresses as other networks have them."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from headrace.contracts.errors import KafkaUnreachable
from headrace.services.kafka.reach import reachable
from headrace.services.settings import Settings
from tests.clusters.addresses import NOWHERE, Addresses, broker_by_several
from tests.kafka.fixtures import OwnKafka
from tests.runtime.conftest import free_port
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline

__all__ = ["free_port"]


@pytest.fixture(scope="module")
def addresses(kafka_own_of_module: OwnKafka) -> Addresses:
    return broker_by_several(kafka_own_of_module)


def test_a_name_that_nobody_knows_is_said_with_who_gives_it(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test asks once: a name server may take its time to know no such name.
    monkeypatch.setattr("headrace.services.kafka.reach._PAUSE_S", 3_600.0)
    settings = Settings(bootstrap_servers=addresses.misnamed)
    port = addresses.misnamed.partition(":")[2]
    with pytest.raises(KafkaUnreachable) as caught:
        asyncio.run(reachable(settings, 60_000))
    assert caught.value.exit_code == 3
    there = f"{NOWHERE}:{port}"
    assert str(caught.value) == (
        f"the broker at {addresses.misnamed} says that it is to be found at {there}, and no broker"
        f" answers at {there}: nobody knows this host; check the broker's `advertised.listeners`,"
        " which clients must be able to reach (tried for 1m)"
    )


def test_a_sidecar_runs_and_answers_by_ipv6_alone(
    addresses: Addresses, make_pipeline: MakePipeline, free_port: int
) -> None:
    pipeline = make_pipeline("reorder: {grace: 1s}", servers=addresses.six)
    answers = {"http_host": "::1", "http_port": str(free_port)}
    sidecar = pipeline.start(**answers)
    pipeline.produce(some_records(100, 1))
    pipeline.wait_until_done()
    for page, said in (("live", b"moves"), ("ready", b"run"), ("metrics", b"headrace_")):
        with urllib.request.urlopen(f"http://[::1]:{free_port}/{page}") as answer:
            assert said in answer.read()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
