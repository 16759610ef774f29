"""The addresses of brokers and of servers beside them, as people write them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from headrace.contracts.problem_text import show

PORT_MAX = 65_535


def servers(text: str) -> list[str]:
    """Return the brokers' addresses, each with its port."""
    return [address.strip() for address in text.split(",")]


def check_servers(text: str) -> str:
    """Return the text itself, if it says where brokers are."""
    for address in servers(text):
        host, _, port = address.rpartition(":")
        bare = (host.startswith("[") and host.endswith("]")) or not set(host) & set(":/[]@ ")
        number = port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX))
        if not (host and bare and number and 0 < int(port) <= PORT_MAX):
            message = f"{show(address)} is not an address; write host:port, several with commas"
            raise ValueError(message)
    return text


def check_url(text: str) -> str:
    """Return the text itself, if its host and port can be read."""
    try:
        _ = urlsplit(text).port
    except ValueError:
        # A password may stand in the text, so what reads the error decides what is shown.
        kind = "string_pattern_mismatch"
        raise PydanticCustomError(kind, "no host and port") from None
    return text


Servers = Annotated[str, AfterValidator(check_servers)]
