"""How every client of ours connects and says who it is: one set of options for all of them.

aiokafka never authenticates an open connection anew (KIP-368). A broker that limits sessions closes
such a connection when the token's life is over; the client then connects again, with a new token.
"""

from __future__ import annotations

import logging
import ssl
from functools import cache, partial
from pathlib import Path
from typing import Any

from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.servers import servers
from headrace.services.kafka.tls import FollowingContext
from headrace.services.kafka.tokens import TokenProvider
from headrace.services.settings import Settings
from headrace.services.variables import variable

_OAUTH = "OAUTHBEARER"


def client_options(settings: Settings, role: str) -> dict[str, Any]:
    """Return the options of every aiokafka client; brokers' logs and quotas know it by its role."""
    logging.getLogger("aiokafka.conn").addFilter(_is_no_login)
    options: dict[str, Any] = {
        "bootstrap_servers": servers(settings.bootstrap_servers),
        "client_id": f"headrace-{role}",
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(settings)
    if settings.security_protocol.startswith("SASL_"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        if settings.sasl_mechanism == _OAUTH:
            options["sasl_oauth_token_provider"] = _token_provider(settings)
        else:
            options["sasl_plain_username"] = settings.sasl_username
            options["sasl_plain_password"] = _password(settings)
    return options


def consumer_options(settings: Settings) -> dict[str, Any]:
    """Return the options of a consumer that is a member of a group."""
    return {
        **client_options(settings, "consumer"),
        "group_instance_id": settings.instance_id,
        "session_timeout_ms": settings.session_timeout_ms,
        "heartbeat_interval_ms": settings.heartbeat_interval_ms,
    }


def user_of(settings: Settings) -> str:
    """Whom the brokers know us as, in a sentence."""
    user = settings.sasl_username or settings.oauth_client_id
    if user is None and settings.ssl_certificate_file is not None:
        return f"the owner of `{settings.ssl_certificate_file.name}`"
    return f"the user `{user or 'anonymous'}`"


def faust_brokers(settings: Settings) -> list[str]:
    """The brokers as a Faust app wants them."""
    return [f"kafka://{address}" for address in servers(settings.bootstrap_servers)]


def faust_credentials(settings: Settings) -> Credentials | None:
    """The same for a Faust app's `broker_credentials`; Faust hands all of it on to aiokafka."""
    context = _ssl_context(settings) if settings.security_protocol.endswith("SSL") else None
    if not settings.security_protocol.startswith("SASL_"):
        return None if context is None else SSLCredentials(context)
    if settings.sasl_mechanism == _OAUTH:
        return OAuthCredentials(oauth_cb=_token_provider(settings), ssl_context=context)
    return SASLCredentials(
        username=settings.sasl_username,
        password=_password(settings),
        mechanism=settings.sasl_mechanism,
        ssl_context=context,
    )


def _is_no_login(record: logging.LogRecord) -> bool:
    # At DEBUG aiokafka logs every request whole: here, passwords and tokens.
    values = record.args if isinstance(record.args, tuple) else ()
    return not any(type(value).__name__.startswith("SaslAuthenticate") for value in values)


def _password(settings: Settings) -> str | None:
    secret = settings.sasl_password
    return None if secret is None else secret.get_secret_value()


@cache
def _ssl_context(settings: Settings) -> ssl.SSLContext:
    files = (settings.ssl_ca_file, settings.ssl_certificate_file, settings.ssl_key_file)
    named = [file for file in files if file is not None]
    return FollowingContext(partial(_context_now, settings), named)


def _context_now(settings: Settings) -> ssl.SSLContext:
    context = trusting(settings.ssl_ca_file, system=False)
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_certificate_file is not None:
        password = settings.ssl_key_password
        # Without a password OpenSSL would ask for one on the terminal, and wait.
        secret = "" if password is None else password.get_secret_value()
        try:
            context.load_cert_chain(
                settings.ssl_certificate_file, settings.ssl_key_file, lambda: secret
            )
        except OSError as error:
            message = (
                f"{variable('ssl_key_file')}: certificate and key cannot be read together"
                f" ({_reason(error)}); check both files, and {variable('ssl_key_password')}"
            )
            raise SettingsInvalid(message) from error
    return context


def trusting(file: Path | None, *, system: bool, setting: str = "ssl_ca_file") -> ssl.SSLContext:
    """A context that trusts the authorities in a file, and the system's if asked or without one."""
    try:
        context = ssl.create_default_context(cafile=None if system else file)
        if system and file is not None:
            context.load_verify_locations(file)
    except OSError as error:
        message = (
            f"{variable(setting)}: `{file}` holds no certificate that can be read"
            f" ({_reason(error)}); write certificates as PEM"
        )
        raise SettingsInvalid(message) from error
    return context


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or "unknown"
    return str(reason).replace("_", " ").lower()


@cache
def _token_provider(settings: Settings) -> TokenProvider:
    secret = settings.oauth_client_secret
    # Token servers are vouched for by the system's authorities, or by the one of the brokers.
    trusted = settings.ssl_ca_file
    context = FollowingContext(
        partial(trusting, trusted, system=True), [] if trusted is None else [trusted]
    )
    return TokenProvider(
        str(settings.oauth_token_url),
        str(settings.oauth_client_id),
        "" if secret is None else secret.get_secret_value(),
        settings.oauth_scope,
        context,
    )
