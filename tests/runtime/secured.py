"""A broker that lets in who says who he is, over TLS alone; its doors, and who is who."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.kraft import Endpoint, Listener
from headrace.services.broker.ports import LOOPBACK, free_ports
from headrace.services.settings import Settings
from tests.kafka.clients import Clients
from tests.kafka.fixtures import OwnKafka
from tests.runtime.certificates import Authority
from tests.runtime.token_server import CLIENT, SECRET, TokenServer

PASSWORD = "correct horse battery=staple"  # noqa: S105
_MODULES = "org.apache.kafka.common.security"
SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
USERS = dict.fromkeys(("ada", "bob", "carol"), PASSWORD)
NO_LOGIN: dict[str, Any] = dict.fromkeys(("sasl_mechanism", "sasl_username", "sasl_password"))


class Secured(NamedTuple):
    """A broker that lets in who says who he is, over TLS alone."""

    broker: EmbeddedBroker
    authority: Authority
    stranger: Authority
    """Vouches for nobody that the broker knows."""

    def settings(self, **changes: Any) -> Settings:
        """How Ada connects, but for these changes."""
        usual: dict[str, Any] = {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "ada",
            "sasl_password": PASSWORD,
            "ssl_ca_file": self.authority.file,
        }
        return Settings(**{name: one for name, one in (usual | changes).items() if one is not None})

    def oauth(self, server: TokenServer, **changes: Any) -> Settings:
        """How a client with a token connects, but for these changes."""
        client: dict[str, Any] = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_username": None,
            "sasl_password": None,
            "oauth_token_url": server.url,
            "oauth_client_id": CLIENT,
            "oauth_client_secret": SECRET,
        }
        return self.settings(**client | changes)

    @property
    def clients(self) -> Clients:
        """Clients that need no password."""
        return Clients(self.broker.plain_servers)


def secured_broker(make: OwnKafka, folder: Path) -> Secured:
    """Start one; its certificates are made in a folder."""
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    broker = make(secured_properties(authority), clients_protocol="SASL_SSL", users=USERS)
    return Secured(broker, authority, stranger)


def secured_properties(authority: Authority) -> dict[str, str]:
    """Return the properties of such a broker."""
    listener = "listener.name.clients"
    return {
        **keystore(authority, "broker"),
        "ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        f"{listener}.scram-sha-512.sasl.jaas.config": SCRAM,
        f"{listener}.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_ada="{PASSWORD}";'
        ),
        f"{listener}.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="broker";'
        ),
        # Connections end with the token that they were opened with.
        f"{listener}.oauthbearer.connections.max.reauth.ms": "3600000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:ada;User:{CLIENT}",
    }


def keystore(authority: Authority, name: str, days: int = 2) -> dict[str, str]:
    """The properties of a broker with a certificate."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue(name, for_host="IP:127.0.0.1", days=days)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }


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


def as_given(settings: Settings) -> dict[str, str]:
    """Settings as a sidecar is given them."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {
        name: one.get_secret_value() if isinstance(one, SecretStr) else str(one)
        for name, one in given.items()
    }
