"""An instance that does not get in says why: one sentence, at once, and nothing in the log."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.errors import KafkaRefused, KafkaUnreachable, SettingsInvalid
from headrace.services.kafka.reach import reachable
from headrace.services.kafka.security import (
    client_options,
)
from headrace.services.settings import Settings
from tests.kafka.fixtures import OwnKafka
from tests.runtime.certificates import Authority
from tests.runtime.secured import NO_LOGIN, PASSWORD, Doors, Secured, open_doors
from tests.runtime.token_server import TokenServer, token_server


@pytest.fixture(scope="module")
def doors(kafka_own_of_module: OwnKafka, tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return open_doors(kafka_own_of_module, tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secured(doors: Doors) -> Secured:
    return doors.secured


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    gc.collect()  # so does what other tests have left
    yield
    gc.collect()  # what is left open says so when it is found


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask once, for a minute: the sentence is of the last round, which is a short one."""
    monkeypatch.setattr("headrace.services.kafka.reach._PAUSE_S", 3_600.0)


WRONG = "wrong-4711"


def _refusal(settings: Settings, within_ms: int = 120_000) -> str:
    begun_s = time.monotonic()
    with pytest.raises(KafkaRefused) as caught:
        asyncio.run(reachable(settings, within_ms))
    assert caught.value.exit_code == 2
    # A refusal is final: nobody waits for the bound.
    assert time.monotonic() - begun_s < within_ms / 1000
    return str(caught.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_one_sentence(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.settings(sasl_mechanism=mechanism, sasl_password=WRONG)
    assert _refusal(settings) == (
        f"the broker at {secured.broker.bootstrap_servers} refused the user `ada` ({mechanism});"
        " check HEADRACE_SASL_USERNAME and HEADRACE_SASL_PASSWORD"
    )
    assert caplog.records == []


def test_an_authority_that_we_do_not_know_is_one_sentence(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    assert _refusal(secured.settings(ssl_ca_file=secured.stranger.file)) == (
        f"the broker at {secured.broker.bootstrap_servers} shows a certificate that we do not trust"
        " (unable to get local issuer certificate); check HEADRACE_SSL_CA_FILE"
    )
    assert _refusal(secured.settings(ssl_ca_file=None)).endswith("; check HEADRACE_SSL_CA_FILE")
    assert caplog.records == []


def test_a_host_that_the_certificate_does_not_name_is_one_sentence(secured: Secured) -> None:
    port = secured.broker.bootstrap_servers.rpartition(":")[2]
    settings = secured.settings(bootstrap_servers=f"localhost:{port}")
    refusal = _refusal(settings)
    assert "Hostname mismatch" in refusal
    assert refusal.endswith("call it by a name in it, or set HEADRACE_SSL_CHECK_HOSTNAME to false")
    careless = secured.settings(bootstrap_servers=f"localhost:{port}", ssl_check_hostname=False)
    asyncio.run(reachable(careless))


def test_a_certificate_of_ours_is_shown_and_may_be_refused(doors: Doors, secured: Secured) -> None:
    def settings(**changes: Any) -> Settings:
        servers = doors.mutual
        return secured.settings(
            bootstrap_servers=servers, security_protocol="SSL", **NO_LOGIN, **changes
        )

    def ours(authority: Authority, name: str, password: str = "") -> dict[str, Any]:
        file = authority.issue(name, password=password)
        return {"ssl_certificate_file": file, "ssl_key_file": file}

    asyncio.run(reachable(settings(**ours(secured.authority, "plain"))))
    encrypted = ours(secured.authority, "encrypted", PASSWORD)
    asyncio.run(reachable(settings(**encrypted, ssl_key_password=PASSWORD)))
    for secret in ({}, {"ssl_key_password": WRONG}):
        with pytest.raises(SettingsInvalid, match=r"^HEADRACE_SSL_KEY_FILE: certificate and key"):
            client_options(settings(**encrypted, **secret), "test")
    refused = "refused our certificate"
    assert refused in _refusal(settings())
    assert refused in _refusal(settings(**ours(secured.stranger, "unknown")))


def test_files_that_are_no_certificates_are_a_sentence(secured: Secured) -> None:
    with pytest.raises(SettingsInvalid, match=r"^HEADRACE_SSL_CA_FILE: .* holds no certificate"):
        client_options(secured.settings(ssl_ca_file=Path(__file__)), "test")


def test_a_mechanism_that_the_broker_lacks_is_one_sentence(secured: Secured) -> None:
    servers = secured.broker.bootstrap_servers
    assert _refusal(secured.settings(sasl_mechanism="SCRAM-SHA-256")) == (
        f"the broker at {servers} does not know SCRAM-SHA-256;"
        " set HEADRACE_SASL_MECHANISM to what it knows"
    )


def test_a_broker_that_wants_no_login_is_one_sentence(secured: Secured) -> None:
    servers = secured.broker.plain_servers
    plain: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": None}
    assert _refusal(secured.settings(bootstrap_servers=servers, **plain)) == (
        f"the broker at {servers} wants no login;"
        " set HEADRACE_SECURITY_PROTOCOL to PLAINTEXT or SSL"
    )


@pytest.mark.usefixtures("one_round")
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_a_wrong_protocol_is_hinted_at(secured: Secured, protocol: str) -> None:
    """To either side the other one's bytes make no sense, and it hangs up or waits for more."""
    changes: dict[str, Any] = {"security_protocol": protocol}
    if not protocol.startswith("SASL"):
        changes |= NO_LOGIN
    if not protocol.endswith("SSL"):
        changes["ssl_ca_file"] = None
    settings = secured.settings(**changes)
    with pytest.raises(KafkaUnreachable) as caught:
        asyncio.run(reachable(settings, 60_000))
    assert secured.broker.bootstrap_servers in str(caught.value)
    assert "HEADRACE_SECURITY_PROTOCOL" in str(caught.value)


@pytest.mark.usefixtures("one_round")
def test_tls_to_a_listener_without_it_is_hinted_at(secured: Secured) -> None:
    settings = secured.settings(bootstrap_servers=secured.broker.plain_servers)
    with pytest.raises(KafkaUnreachable) as caught:
        asyncio.run(reachable(settings, 60_000))
    assert str(caught.value).endswith(
        "it hangs up; check that it speaks SASL_SSL (HEADRACE_SECURITY_PROTOCOL) (tried for 1m)"
    )


def test_a_broker_that_shakes_hands_and_then_says_nothing_is_let_go(secured: Secured) -> None:
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(secured.authority.issue("silent", for_host="IP:127.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        shaking = threading.Thread(target=_shake_hands_alone, args=(listener, ours))
        shaking.start()
        settings = secured.settings(bootstrap_servers=address, security_protocol="SSL", **NO_LOGIN)
        with pytest.raises(KafkaUnreachable, match="it is silent"):
            asyncio.run(reachable(settings, 500))
        shaking.join()


def _shake_hands_alone(listener: socket.socket, ours: ssl.SSLContext) -> None:
    listener.settimeout(30)
    connection, _ = listener.accept()
    # A client that is slow may be gone before both have shaken hands.
    with suppress(OSError), ours.wrap_socket(connection, server_side=True) as shaken:
        while shaken.recv(1_024):
            pass


def test_a_token_that_the_broker_does_not_accept_is_one_sentence(
    secured: Secured, server: TokenServer
) -> None:
    server.life_s = -60
    server.says_life = False
    assert _refusal(secured.oauth(server)) == (
        f"the broker at {secured.broker.bootstrap_servers} does not accept our token;"
        " check its scope, and what the broker expects"
    )


@pytest.mark.usefixtures("one_round")
def test_no_token_is_one_sentence(secured: Secured, server: TokenServer, free_port: int) -> None:
    refusal = _refusal(secured.oauth(server, oauth_client_secret=WRONG))
    assert refusal.startswith(f"the token server {server.url} refuses client `headrace` (401")
    silent = secured.oauth(server, oauth_token_url=f"http://127.0.0.1:{free_port}/")
    with pytest.raises(KafkaUnreachable, match=r"^the token server .* does not answer"):
        asyncio.run(reachable(silent, 60_000))
