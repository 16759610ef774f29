"""Spark, too, finds brokers by addresses as other networks have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters.addresses import broker_by_several
from tests.kafka.clients import Clients
from tests.kafka.fixtures import OwnKafka
from tests.spark.test_failures import StockJob
from tests.spark.test_own_job import told

pytestmark = pytest.mark.long("clusters", why="it needs a broker on IPv6 of its own")


def test_a_spark_job_reads_and_writes_by_ipv6_alone(kafka_own: OwnKafka, tmp_path: Path) -> None:
    servers = broker_by_several(kafka_own).six
    clients = Clients(servers)
    clients.make_topic("stock.cleaned", 1, {"retention.ms": "-1"})
    clients.produce("stock.cleaned", [told("north/bolt", 7, 1_000)])
    code, last_words = StockJob(tmp_path, servers=f'"{servers}"').run()
    assert code == 0, last_words
    (total,) = clients.consume_all("stock.total")
    assert (total.key, total.value) == (b"bolt", b'{"pieces":7}')
