"""Every way to log in, by a whole sidecar; and every way to be turned away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.services.broker.kraft import Endpoint, Listener
from headrace.services.broker.ports import LOOPBACK, free_ports
from headrace.services.settings import Settings
from tests.kafka.fixtures import OwnKafka
from tests.runtime.certificates import Authority
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.secured import (
    SCRAM,
    USERS,
    Secured,
    as_given,
    keystore,
    secured_properties,
)
from tests.runtime.sidecar import MakePipeline
from tests.runtime.token_server import TokenServer, token_server

NO_LOGIN: dict[str, Any] = dict.fromkeys(("sasl_mechanism", "sasl_username", "sasl_password"))
REORDER = "reorder: {grace: 1s}"
OTHER_CLIENTS = pytest.mark.long(
    "clusters", why="`test_security.py` connects all clients by such a password"
)


class Doors(NamedTuple):
    """A broker with a way in for each kind of login."""

    secured: Secured
    """The way in for PLAIN, SCRAM-SHA-512 and tokens."""
    scram: str
    """Where it takes SCRAM-SHA-256 alone."""
    mutual: str
    """Where both sides show a certificate."""
    old: str
    """Where its own certificate has expired."""
    trusted: Path
    """The authority that signs for clients of `mutual`."""
    folder: Path

    def by_certificate(self, file: Path | None, servers: str = "") -> Settings:
        """How the owner of a certificate connects."""
        shown = {} if file is None else {"ssl_certificate_file": file, "ssl_key_file": file}
        return self.secured.settings(
            bootstrap_servers=servers or self.mutual, security_protocol="SSL", **NO_LOGIN, **shown
        )


@pytest.fixture(scope="module")
def doors(kafka_own_of_module: OwnKafka, tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return open_doors(kafka_own_of_module, tmp_path_factory.mktemp("certificates"))


def open_doors(make: OwnKafka, folder: Path) -> Doors:
    """Start a broker with a door for each login."""
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    addresses = [f"{LOOPBACK}:{port}" for port in free_ports(3)]
    trusted = folder / "trusted.pem"
    trusted.write_text(authority.file.read_text())
    expired = keystore(authority, "old", days=-1)
    properties = {
        **secured_properties(authority),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": SCRAM,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(trusted),
        **{f"listener.name.old.{name}": value for name, value in expired.items()},
    }
    properties["super.users"] += ";User:CN=clicks"
    protocols = {"SCRAM": "SASL_SSL", "MUTUAL": "SSL", "OLD": "SSL"}
    listeners = {
        name: Listener(protocol, Endpoint(address, address))
        for (name, protocol), address in zip(protocols.items(), addresses, strict=True)
    }
    broker = make(properties, clients_protocol="SASL_SSL", users=USERS, listeners=listeners)
    scram, mutual, old = addresses
    return Doors(Secured(broker, authority, stranger), scram, mutual, old, trusted, folder)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


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
        "PLAIN",
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
        "a wrong password",
        "a mechanism that it lacks",
        "a token that is refused",
        "an authority that we do not know",
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
