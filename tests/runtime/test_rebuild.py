"""State that a command makes again from a changelog, while brokers go away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.contracts.errors import KafkaUnreachable
from headrace.contracts.record import Record
from headrace.services.admin.rebuild import rebuild
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.settings import Settings
from headrace.services.state.changelog import POSITION, Restoration
from tests.kafka.clients import FOREVER, Clients
from tests.kafka.fixtures import OwnKafka

ROWS = 16
"""Of 900 KB each: more than a consumer has fetched when it hands on the first."""


def test_brokers_that_go_away_meanwhile_are_a_sentence(
    kafka_own: OwnKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(
        "pipeline: clicks\nsource: {topic: raw}\noperators: [table: {}]\nsink: {topic: cleaned}\n"
    )
    spec, broker = load_pipeline(file), kafka_own()
    changelog = spec.hops()[0].changelog.name
    clients = Clients(broker.bootstrap_servers)
    clients.make_topic(changelog, 1, FOREVER)
    rows = [
        Record(b"\x05tablek%d" % n, b"r" * 900_000, 0, (), changelog, 0, n) for n in range(ROWS)
    ]
    end = Record(POSITION, bytes(16), 0, (), changelog, 0, ROWS)
    for row in (*rows, end):
        clients.produce(changelog, [row])
    take = Restoration.take

    def take_and_stop(restoration: Restoration, *given: object) -> int:
        broker.stop()
        return take(restoration, *given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Restoration, "take", take_and_stop)
    settings = Settings(bootstrap_servers=broker.bootstrap_servers, stall_timeout_ms=1_000)
    with pytest.raises(KafkaUnreachable, match="no record of a changelog for 1s; try again"):
        asyncio.run(rebuild(spec, settings, None, lambda *_: None))
