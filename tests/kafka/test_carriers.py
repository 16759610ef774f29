"""A broker survives these events, on every carrier that there is here."""

from __future__ import annotations

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from headrace.contracts.record import Record
from headrace.services.broker.metadata import known_brokers
from tests.kafka.clients import FOREVER, Clients
from tests.kafka.fixtures import KafkaCarrier


def _records(topic: str, first: int, count: int) -> list[Record]:
    return [Record(b"%d" % n, b"v", n, (), topic, 0, n) for n in range(first, first + count)]


def test_acked_records_survive_a_pause_and_a_kill(kafka_carrier: KafkaCarrier) -> None:
    broker = kafka_carrier({"message.max.bytes": "100000"})
    servers = broker.bootstrap_servers
    clients = Clients(servers)
    topic = clients.make_topic("acked", settings=FOREVER)
    clients.produce(topic, _records(topic, 0, 500))
    broker.pause()
    assert known_brokers(int(servers.rpartition(":")[2]), timeout_s=0.5) == set()
    broker.resume()
    clients.produce(topic, _records(topic, 500, 500))
    broker.kill()
    broker.start()
    assert broker.bootstrap_servers == servers
    clients.produce(topic, _records(topic, 1_000, 500))
    assert clients.consume_all(topic) == _records(topic, 0, 1_500)
    # The broker keeps the test's properties, after a kill as well.
    with pytest.raises(MessageSizeTooLargeError):
        clients.produce(topic, [Record(b"k", bytes(200_000), 0, (), topic, 0, None)])


@pytest.mark.long("outages", why="three brokers, two of them killed, on each carrier")
def test_a_cluster_survives_one_of_its_brokers(kafka_carrier: KafkaCarrier) -> None:
    cluster = kafka_carrier(brokers=3)
    clients = Clients(cluster.bootstrap_servers)
    topic = clients.make_topic("replicated", settings=FOREVER)
    clients.produce(topic, _records(topic, 0, 100))
    cluster.brokers[0].kill()
    clients.produce(topic, _records(topic, 100, 100))
    cluster.brokers[0].start()
    cluster.brokers[1].kill()
    clients.produce(topic, _records(topic, 200, 100))
    assert clients.consume_all(topic) == _records(topic, 0, 300)
