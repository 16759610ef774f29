"""Every way to log in, by each client and by a whole sidecar; and every way to be turned away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
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
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.secured import PASSWORD, Doors, Secured, as_given, keystore, open_doors
from tests.runtime.sidecar import MakePipeline
from tests.runtime.token_server import SECRET, TokenServer, token_server

REORDER = "reorder: {grace: 1s}"
OTHER_CLIENTS = pytest.mark.long("clusters", why="each client alone connects by such a password")
TOLD = pytest.mark.long("clusters", why="`test_reach.py` has the sentence, and others the one line")


@pytest.fixture(scope="module")
def doors(kafka_own_of_module: OwnKafka, tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return open_doors(kafka_own_of_module, tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture
def secured(doors: Doors) -> Secured:
    return doors.secured


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


def login(doors: Doors, how: str, server: TokenServer) -> Settings:
    """Settings that let one in."""
    secured = doors.secured
    if how == "certificate":
        return doors.by_certificate(secured.authority.issue("clicks"))
    if how == "OAUTHBEARER":
        return secured.oauth(server)
    servers = doors.scram if how == "SCRAM-SHA-256" else secured.broker.bootstrap_servers
    return secured.settings(bootstrap_servers=servers, sasl_mechanism=how)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("PLAIN", marks=OTHER_CLIENTS),
        pytest.param("SCRAM-SHA-256", marks=OTHER_CLIENTS),
        pytest.param("SCRAM-SHA-512", marks=OTHER_CLIENTS),
        "OAUTHBEARER",
        "certificate",
    ],
)
def test_a_sidecar_runs_behind_every_login(
    doors: Doors, server: TokenServer, make_pipeline: MakePipeline, how: str
) -> None:
    pipeline = make_pipeline(REORDER, servers=doors.secured.broker.plain_servers)
    sidecar = pipeline.start(**as_given(login(doors, how, server)))
    pipeline.produce(some_records(100, 1))
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


def turned_away(doors: Doors, why: str, server: TokenServer) -> tuple[Settings, str]:
    """Settings that let nobody in, and what is said of them."""
    secured = doors.secured
    file = None
    match why:
        case "a wrong password":
            return secured.settings(sasl_password="wrong"), "refused the user `ada` (SCRAM-SHA-512)"  # noqa: S106
        case "a mechanism that it lacks":
            settings = secured.settings(bootstrap_servers=doors.scram)
            return settings, "does not know SCRAM-SHA-512; set HEADRACE_SASL_MECHANISM"
        case "a token that is refused":
            settings = secured.oauth(server, oauth_client_secret="wrong")  # noqa: S106
            return settings, "refuses client `headrace` (401, invalid_client)"
        case "an authority that we do not know":
            settings = secured.settings(ssl_ca_file=secured.stranger.file)
            return settings, "check HEADRACE_SSL_CA_FILE"
        case "its certificate has expired":
            settings = doors.by_certificate(None, doors.old)
            return settings, "(certificate has expired); have the broker's certificate renewed"
        case "our certificate has expired":
            file = secured.authority.issue("late", days=-1)
        case "an authority that it does not know":
            file = secured.stranger.issue("strange")
        case _:
            assert why == "no certificate"
    return doors.by_certificate(file), "check HEADRACE_SSL_CERTIFICATE_FILE: who signed it"


@pytest.mark.parametrize(
    "why",
    [
        pytest.param("a wrong password", marks=TOLD),
        pytest.param("a mechanism that it lacks", marks=TOLD),
        pytest.param("a token that is refused", marks=TOLD),
        pytest.param("an authority that we do not know", marks=TOLD),
        "its certificate has expired",
        "our certificate has expired",
        "an authority that it does not know",
        "no certificate",
    ],
)
def test_a_login_that_is_turned_away_is_told_in_one_line(
    doors: Doors, server: TokenServer, make_pipeline: MakePipeline, why: str
) -> None:
    pipeline = make_pipeline(REORDER, servers=doors.secured.broker.plain_servers)
    settings, sentence = turned_away(doors, why, server)
    sidecar = pipeline.start(**as_given(settings))
    assert sidecar.wait() == 2
    (line,) = sidecar.log.splitlines()
    assert sentence in line


@pytest.mark.long("clusters", why="it waits for connections to be made anew")
def test_certificates_that_are_renewed_while_it_runs_are_taken_up(
    kafka_own: OwnKafka, tmp_path: Path, make_pipeline: MakePipeline
) -> None:
    """Ours, and with it who vouches for us; connections that are made from then on have it."""
    # The other tests need a broker that keeps its authority.
    doors = open_doors(kafka_own, tmp_path)
    secured, broker = doors.secured, doors.secured.broker
    file, authorities = doors.folder / "ours.pem", doors.folder / "authorities.pem"
    file.write_text(secured.authority.issue("clicks").read_text())
    authorities.write_text(secured.authority.file.read_text())
    settings = doors.by_certificate(file).model_copy(update={"ssl_ca_file": authorities})
    pipeline = make_pipeline(REORDER, servers=broker.plain_servers)
    sidecar = pipeline.start(**as_given(settings))
    pipeline.produce(some_records(100, 1))
    pipeline.wait_until_done()
    # From here on the broker is another authority's, and takes what that one signed alone.
    file.write_text(secured.stranger.issue("clicks").read_text())
    authorities.write_text(secured.stranger.file.read_text())
    doors.trusted.write_text(secured.stranger.file.read_text())
    shown = Path(keystore(secured.stranger, "broker")["ssl.keystore.location"])
    assert shown == doors.folder / "broker.whole.pem"
    broker.kill()
    broker.start()
    pipeline.produce(some_records(100, 2, start_ms=4_000))
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "certificates were renewed" in sidecar.log
    assert_cleaned(pipeline)
