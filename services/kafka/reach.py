"""Is a broker there, and does it let us in? Asked before anything else, and answered in a sentence.

aiokafka's clients log what went wrong and then say that no broker could be reached; so this asks on
a connection of its own, whose errors are still what they were.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Any

from aiokafka.conn import get_ip_port_afi
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from headrace.contracts.errors import HeadraceError, KafkaRefused, KafkaUnreachable
from headrace.contracts.time import format_duration_ms
from headrace.services.kafka import seams
from headrace.services.kafka.security import client_options
from headrace.services.settings import Settings

REACHED_WITHIN_MS = 10_000
_PAUSE_S = 0.25
_LOOK = "check HEADRACE_BOOTSTRAP_SERVERS, and that the broker runs"
_LOOK_THERE = "check the broker's `advertised.listeners`, which clients must be able to reach"
_CLIENT_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""A broker's alert speaks of one of these when it refuses our certificate, or the lack of one."""
_CERTIFICATE_ADVICE = {
    "mismatch": "call it by a name in it, or set HEADRACE_SSL_CHECK_HOSTNAME to false",
    "expired": "have the broker's certificate renewed, or check the clock here",
    "not yet valid": "check the clocks, here and there",
}


async def reachable(settings: Settings, within_ms: int = REACHED_WITHIN_MS) -> None:
    """Return when a broker answers and lets us in; KafkaUnreachable if none does in time.

    A broker that answers and refuses is not asked again: that is KafkaRefused.
    """
    options = client_options(settings, "reach")
    addresses = options.pop("bootstrap_servers")
    give_up_at_s = time.monotonic() + within_ms / 1_000
    while True:
        problems = []
        for address in addresses:
            try:
                # A broker that is asked in the last moment would seem silent, and be called so.
                until_s = max(give_up_at_s, time.monotonic() + within_ms / 4_000)
                return await _reach(address, options, until_s)
            except KafkaUnreachable as error:
                problems.append(str(error))
        if time.monotonic() + _PAUSE_S >= give_up_at_s:
            tried = f" (tried for {format_duration_ms(within_ms)})"
            raise KafkaUnreachable("\n".join(problem + tried for problem in problems))
        await asyncio.sleep(_PAUSE_S)


async def _reach(address: str, options: dict[str, Any], give_up_at_s: float) -> None:
    named = await _named_brokers(address, options, give_up_at_s)
    if address in named:
        return
    # Clients go on to the addresses that the brokers give for themselves.
    for other in named:
        try:
            await _named_brokers(other, options, give_up_at_s, _LOOK_THERE)
        except KafkaUnreachable as error:
            problem = error
        else:
            return
    message = (
        f"the broker at {address} says that it is to be found at {', '.join(named)}, and {problem}"
    )
    raise KafkaUnreachable(message) from problem


async def _named_brokers(
    address: str, options: dict[str, Any], give_up_at_s: float, look: str = _LOOK
) -> list[str]:
    """The addresses of all brokers, as the one at this address says."""
    host, port, _ = get_ip_port_afi(address)
    timeout_ms = max(1, int((give_up_at_s - time.monotonic()) * 1_000))
    connection = seams.Connection(host, port, request_timeout_ms=timeout_ms, **options)
    try:
        await connection.connect()
        metadata = await connection.send(MetadataRequest([]))
    except (OSError, KafkaError, ValueError) as error:
        raise _verdict(error, address, options, look) from error
    finally:
        await seams.hang_up(connection)
    # A broker says no to a token in words that aiokafka takes for a yes, and then tells nothing.
    if not metadata.brokers and options.get("sasl_mechanism") == "OAUTHBEARER":
        message = (
            f"the broker at {address} does not accept our token;"
            " check its scope, and what the broker expects"
        )
        raise KafkaRefused(message)
    if not metadata.brokers:
        message = f"the broker at {address} knows no brokers yet, not even itself"
        raise KafkaUnreachable(message)
    return [
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for _, host, port, *_ in metadata.brokers
    ]


def _verdict(error: Exception, address: str, options: dict[str, Any], look: str) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    closed = isinstance(error, KafkaConnectionError)
    cause = error.__cause__ if closed and error.__cause__ is not None else error
    refusal = _certificate_refusal(cause) or _login_refusal(cause, options)
    if refusal is not None:
        return KafkaRefused(f"the broker at {address} {refusal}")
    return KafkaUnreachable(f"no broker answers at {address}: {_reason(cause, options, look)}")


def _login_refusal(error: BaseException, options: dict[str, Any]) -> str | None:
    mechanism, user = options.get("sasl_mechanism"), options.get("sasl_plain_username")
    if isinstance(error, SaslAuthenticationFailed):
        return (
            f"refused the user `{user}` ({mechanism});"
            " check HEADRACE_SASL_USERNAME and HEADRACE_SASL_PASSWORD"
        )
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"does not know {mechanism}; set HEADRACE_SASL_MECHANISM to what it knows"
    if isinstance(error, IllegalSaslStateError):
        return "wants no login; set HEADRACE_SECURITY_PROTOCOL to PLAINTEXT or SSL"
    if isinstance(error, ValueError) and mechanism:
        return (
            f"does not prove that it knows the password of `{user}` ({error}); is it the right one?"
        )
    return None


def _certificate_refusal(error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        advice = next(
            (advice for word, advice in _CERTIFICATE_ADVICE.items() if word in said),
            "check HEADRACE_SSL_CA_FILE",
        )
        return f"shows a certificate that we do not trust ({said}); {advice}"
    alert = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if any(word in alert for word in _CLIENT_ALERTS):
        reason = alert.replace("_", " ").lower()
        return (
            f"refused our certificate ({reason}); check HEADRACE_SSL_CERTIFICATE_FILE: who signed"
            " it, and until when"
        )
    return None


def _reason(error: BaseException, options: dict[str, Any], look: str) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"the connection is refused; {look}"
    if isinstance(error, socket.gaierror):
        return f"nobody knows this host; {look}"
    if isinstance(error, TimeoutError):
        return f"it is silent; {look}"
    if isinstance(error, ssl.SSLError | ConnectionError | EOFError | KafkaConnectionError):
        protocol = options["security_protocol"]
        return f"it hangs up; check that it speaks {protocol} (HEADRACE_SECURITY_PROTOCOL)"
    return f"{error}; {look}"
