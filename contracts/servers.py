"""The addresses of brokers, as people write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

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


Servers = Annotated[str, AfterValidator(check_servers)]
