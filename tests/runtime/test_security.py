"""TLS, SCRAM, PLAIN and OAUTHBEARER against a real broker that insists on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list
from yarl import URL

from headrace.services.kafka.cluster import connected
from headrace.services.kafka.reach import reachable
from headrace.services.kafka.security import (
    client_options,
    consumer_options,
    faust_brokers,
    faust_credentials,
)
from headrace.services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.runtime.secured import PASSWORD, Secured, secured_broker
from tests.runtime.token_server import SECRET, TokenServer, token_server


@pytest.fixture(scope="module")
def secured(kafka_own_of_module: OwnKafka, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return secured_broker(kafka_own_of_module, tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_every_client_connects_by_password(secured: Secured, mechanism: str) -> None:
    settings = secured.settings(sasl_mechanism=mechanism)
    topic = secured.clients.make_topic(fresh_name("secret"), 2)
    asyncio.run(_use_every_client(settings, topic))
    assert [one.value for one in secured.clients.consume(topic, 1)] == [b"value"]


def test_every_client_connects_by_token(secured: Secured, server: TokenServer) -> None:
    topic = secured.clients.make_topic(fresh_name("token"), 2)
    asyncio.run(_use_every_client(secured.oauth(server, oauth_scope="records"), topic))
    assert len(server.tokens) == 1
    assert server.scopes == ["records"]


async def _use_every_client(settings: Settings, topic: str) -> None:
    """Probe, admin, producer, transactional producer, and a consumer made as Faust's is."""
    await reachable(settings)
    async with connected(settings) as cluster:
        assert await cluster.partitions([topic]) == {topic: 2}
    for transactional_id in (None, fresh_name("transaction")):
        producer = AIOKafkaProducer(
            **client_options(settings, "test"), transactional_id=transactional_id
        )
        await producer.start()
        try:
            if transactional_id is None:
                await producer.send_and_wait(topic, b"value", partition=1)
        finally:
            await producer.stop()
    consumer = AIOKafkaConsumer(
        topic,
        **consumer_options(settings),
        group_id=fresh_name("group"),
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"value"
    finally:
        await consumer.stop()


@pytest.mark.long("clusters", why="it waits until a token is old")
def test_tokens_are_renewed_while_records_flow(secured: Secured, server: TokenServer) -> None:
    server.life_s = 3
    settings = secured.oauth(server)
    topic = secured.clients.make_topic(fresh_name("flow"))
    producer_options = {"transactional_id": fresh_name("flow"), "retry_backoff_ms": 20}
    consumer_only = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}

    async def flow() -> list[bytes]:
        read: list[bytes] = []
        async with (
            AIOKafkaProducer(**client_options(settings, "test"), **producer_options) as producer,
            AIOKafkaConsumer(
                topic,
                **consumer_options(settings),
                **consumer_only,
                group_id=fresh_name("group"),
                isolation_level="read_committed",
            ) as consumer,
        ):
            # The broker ends each connection with its token.
            while len(server.tokens) < 4:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"%d" % len(read))
                read.append((await consumer.getone()).value)
        return read

    read = asyncio.run(flow())
    assert read == [b"%d" % n for n in range(len(read))]


def test_no_secret_is_logged_at_the_chattiest_level(
    secured: Secured, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    # Another test of this process may have set up logging, which keeps libraries at warnings.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="aiokafka"):
        for settings in (
            secured.settings(),
            secured.settings(sasl_mechanism="PLAIN"),
            secured.oauth(server),
        ):
            asyncio.run(reachable(settings))
    assert "ApiVersion" in caplog.text
    assert PASSWORD not in caplog.text
    assert SECRET not in caplog.text
    assert server.tokens[0] not in caplog.text


def test_faust_hands_on_the_same_options(secured: Secured, server: TokenServer) -> None:
    plain = Settings(bootstrap_servers="[::1]:9092,b:2")
    tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_file": secured.authority.file}
    for settings in (
        plain,
        Settings(**tls),
        secured.settings(),
        secured.oauth(server),
        secured.settings(security_protocol="SASL_PLAINTEXT", ssl_ca_file=None),
    ):
        handed_on = {
            name: value
            for name, value in credentials_to_aiokafka_auth(faust_credentials(settings)).items()
            if value is not None
        }
        wanted = client_options(settings, "test")
        assert handed_on == {
            name: value
            for name, value in wanted.items()
            if name not in {"bootstrap_servers", "client_id"}
        }
        urls = [URL(url) for url in faust_brokers(settings)]
        assert server_list(urls, 1) == wanted["bootstrap_servers"]
    assert PASSWORD not in repr(faust_credentials(secured.settings()))
