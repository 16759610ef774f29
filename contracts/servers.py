"""The addresses of brokers and of servers beside them, as people write them, and their answers."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from headrace.contracts.problem_text import show

PORT_MAX = 65_535
REGISTRY_PATTERN = r"^https?://[^/@,\s]+[^@,\s]*$"
"""How the address of a schema registry looks: of one, and without a user."""
_BROKEN = 500
_LATER = frozenset({408, 429})
"""It, or a proxy before it, had no time to listen, or was asked too often."""


def servers(text: str) -> list[str]:
    """Return the brokers' addresses, each with its port."""
    return [address.strip() for address in text.split(",")]


def check_servers(text: str) -> str:
    """Return the text itself, if it says where brokers are."""
    for address in servers(text):
        host, _, port = address.rpartition(":")
        bare = (host.startswith("[") and host.endswith("]")) or not set(host) & set(":/[]@ ")
        bare = bare and is_resolvable(host)
        number = port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX))
        if not (host and bare and number and 0 < int(port) <= PORT_MAX):
            message = f"{show(address)} is not an address; write host:port, several with commas"
            raise ValueError(message)
    return text


def is_resolvable(host: str) -> bool:
    """Return whether Python can look a name up: it takes none with a part that is empty or long."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def check_host(text: str) -> str:
    """Return the text itself, if it can be looked up."""
    if not is_resolvable(text):
        message = f"{show(text)} is no name of a host; write one, or an address such as 0.0.0.0"
        raise ValueError(message)
    return text


def check_url(text: str) -> str:
    """Return the text itself, if its host and port can be read."""
    if not _has_host_and_port(text):
        # A password may stand in the text, so what reads the error decides what is shown.
        kind = "string_pattern_mismatch"
        raise PydanticCustomError(kind, "no host and port")
    return text


def check_registry(text: str) -> str:
    """Return the text itself, if it is the address of a registry; a password in it is not shown."""
    if not re.match(REGISTRY_PATTERN, text) or not _has_host_and_port(text):
        message = (
            "this is not the address of one registry; write it as https://host:8081, without a user"
        )
        raise ValueError(message)
    return text


def is_in_clear(url: str) -> bool:
    """Return whether what goes there can be read on its way; on this machine it has none."""
    if not url.startswith("http://"):
        return False
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def may_answer_later(status: int) -> bool:
    """Return whether a server, by the status of its answer, is only busy or broken now."""
    return status in _LATER or status >= _BROKEN


def _has_host_and_port(url: str) -> bool:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return False
    return is_resolvable(split.hostname or "")


Servers = Annotated[str, AfterValidator(check_servers)]


def fields_in(answer: bytes) -> dict[str, Any]:
    """Return the fields of an answer in JSON, none if it is anything else."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
