"""The broker ends, or falls silent for long: a sidecar waits, begins again, and misses nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.services.broker.embedded import EmbeddedBroker
from tests.kafka.fixtures import OwnKafka
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    expected_of,
    stream,
    wait_until_all_move,
)
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar, contents

pytestmark = pytest.mark.long("outages", why="strikes at brokers come when the clock says so")

PARTITIONS = 2
SHORT = {
    "transaction_timeout": "2s",
    "session_timeout": "2s",
    "heartbeat_interval": "200ms",
    "shutdown_timeout": "2s",
}
LONGER_S = 4.0


def test_a_broker_that_ends_or_sleeps_loses_and_doubles_nothing(
    make_pipeline: MakePipeline, kafka_own: OwnKafka
) -> None:
    broker = kafka_own({"group.min.session.timeout.ms": "1000"})
    exactly, at_least = (
        make_pipeline(
            *REORDER_AND_DEDUPLICATE, partitions=PARTITIONS, servers=broker.bootstrap_servers
        )
        for _ in range(2)
    )
    with stream(exactly, PARTITIONS), stream(at_least, PARTITIONS):
        sidecars = start(exactly, at_least)
        wait_until_both_move(exactly, at_least)
        broker.kill()
        broker.start()
        wait_until_both_move(exactly, at_least)
        # Transactions time out and instances are thrown out of their groups meanwhile.
        with paused(broker):
            time.sleep(LONGER_S)
        wait_until_both_move(exactly, at_least)
        # A sidecar that is told to stop now cannot commit any more, and stops.
        with paused(broker):
            assert [sidecar.stop() for sidecar in sidecars] == [0, 0]
        sidecars = start(exactly, at_least)
        wait_until_both_move(exactly, at_least)
    for pipeline, sidecar in zip((exactly, at_least), sidecars, strict=True):
        pipeline.wait_until_done()
        assert sidecar.stop() == 0
    assert_cleaned(exactly)
    expected, cleaned = Counter(expected_of(at_least)), Counter(contents(at_least.cleaned()))
    assert cleaned.keys() == expected.keys()
    assert cleaned >= expected


@contextmanager
def paused(broker: EmbeddedBroker) -> Iterator[None]:
    broker.pause()
    try:
        yield
    finally:
        broker.resume()


def start(exactly: Pipeline, at_least: Pipeline) -> list[Sidecar]:
    return [exactly.start(**SHORT), at_least.start(guarantee="at-least-once", **SHORT)]


def wait_until_both_move(*pipelines: Pipeline) -> None:
    """Wait until everything is committed further than now."""
    for pipeline in pipelines:
        wait_until_all_move(pipeline, PARTITIONS)
