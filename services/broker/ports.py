"""Ports to listen on, that no client takes meanwhile."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

from headrace.contracts.errors import PortTaken

LOOPBACK = "127.0.0.1"
# Below the range out of which systems give ports to outgoing connections: there, a client that
# looks for a broker that is down may be given that broker's port, and even connect to itself.
_FIRST, _LAST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = _FIRST + secrets.randbelow(_LAST - _FIRST)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    return ports


def check_free(port: int) -> None:
    """Refuse a port that another program listens on."""
    with socket.socket() as listener:
        # A connection that was closed a moment ago does not make a port taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            message = (
                f"Cannot listen on {LOOPBACK}:{port}: {error.strerror}."
                " Stop the program that does, or choose another port with --port."
            )
            raise PortTaken(message) from error
