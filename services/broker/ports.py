"""Ports to listen on, that nobody takes meanwhile.

Between the choice of a port and the moment in which a broker listens on it lie seconds. So each
process takes its ports from blocks of its own. The first port of a block is its lock: its owner is
bound to it for as long as the process runs, and never listens there.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from random import SystemRandom

from headrace.contracts.errors import BrokerFailed, PortTaken

LOOPBACK = "127.0.0.1"
# Below the range out of which systems give ports to outgoing connections: there, a client that
# looks for a broker that is down may be given that broker's port, and even connect to itself.
_FIRST, _LAST = 20_000, 32_000
_BLOCK_PORTS = 64


class Blocks:
    """The ports of one process; each is handed out once, as long as there are others."""

    def __init__(self) -> None:
        """No block yet."""
        self._locks: list[int] = []
        """Sockets by their descriptors: the system closes them when the process ends."""
        self._fresh: deque[int] = deque()
        self._used: deque[int] = deque()

    def take(self) -> int:
        """Return a port that nobody listens on."""
        for _ in range(_LAST - _FIRST):
            if not self._fresh:
                self._claim()
            if not self._fresh:
                self._fresh, self._used = self._used, deque()
            if not self._fresh:
                break
            port = self._fresh.popleft()
            self._used.append(port)
            if is_free(port):
                return port
        message = f"No port is free on {LOOPBACK} between {_FIRST} and {_LAST}; stop other brokers"
        raise BrokerFailed(message)

    def give_back(self) -> None:
        """Give the blocks back; those of a forked process stay with the one that it came from."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()
        self._fresh.clear()
        self._used.clear()

    def _claim(self) -> None:
        """Take another block, if one is left."""
        firsts = list(range(_FIRST, _LAST - _BLOCK_PORTS, _BLOCK_PORTS))
        SystemRandom().shuffle(firsts)
        for first in firsts:
            lock = socket.socket()
            try:
                lock.bind((LOOPBACK, first))
            except OSError:
                lock.close()
                continue
            self._locks.append(lock.detach())
            self._fresh.extend(range(first + 1, first + _BLOCK_PORTS))
            return


_ours = Blocks()
os.register_at_fork(after_in_child=_ours.give_back)


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on, and that no other process takes from here."""
    return [_ours.take() for _ in range(count)]


def is_free(port: int) -> bool:
    """Tell whether a port can be listened on; one that was closed a moment ago cannot."""
    with socket.socket() as listener:
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


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
