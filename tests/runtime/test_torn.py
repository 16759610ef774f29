"""No transaction is torn: whatever becomes of one of its requests, nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.services.broker.embedded import EmbeddedBroker
from tests.kafka.fixtures import OwnKafka
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    stream,
    wait_until_all_move,
)
from tests.runtime.proxy import How, Kind, Proxy, proxied
from tests.runtime.sidecar import MakePipeline

STRIKES = [
    # The next transaction is open, and nothing written; the cleaned records are, and not yet the
    # changelog; all but the offsets; all.
    (How.LATE, Kind.PRODUCE, 0),
    (How.LATE, Kind.PRODUCE, 1),
    (How.LATE, Kind.TXN_OFFSET_COMMIT, 0),
    (How.LATE, Kind.END_TXN, 0),
    (How.UNANSWERED, Kind.PRODUCE, 0),
    (How.LOST, Kind.PRODUCE, 0),
    (How.SLOW, Kind.PRODUCE, 0),
]


@pytest.fixture(scope="module")
def between(kafka_own_of_module: OwnKafka) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    with proxied(kafka_own_of_module) as made:
        yield made


MORE = pytest.mark.long("outages", why="each kind of request takes ten seconds")


@pytest.mark.parametrize(
    "kind", [one if one is Kind.END_TXN else pytest.param(one, marks=MORE) for one in Kind]
)
def test_no_record_is_lost_or_doubled_whatever_becomes_of_a_request(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline, kind: Kind
) -> None:
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    sidecar = pipeline.start(bootstrap_servers=proxy.address)
    with stream(pipeline, 1):
        for how, before, passes in STRIKES:
            wait_until_all_move(pipeline, 1)
            strike = proxy.strike(kind, how, before, passes)
            if kind is Kind.INIT_PRODUCER_ID:
                assert sidecar.stop() == 0
                sidecar = pipeline.start(bootstrap_servers=proxy.address)
            strike.wait()
        wait_until_all_move(pipeline, 1)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
