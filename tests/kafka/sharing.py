"""One broker for all the processes of a test run.

The first process that needs it starts it, and owns it: a broker dies with its owner, so the owner
waits for the others before it stops it. Locks count the others, since the system lets go of a lock
whatever becomes of its holder.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.metadata import known_brokers
from headrace.services.broker.ports import LOOPBACK

_ANSWER_WITHIN_S = 5.0
_WITHIN_S = 180.0
_ASK_AGAIN_S = 0.02
_HEAP_MIB = 512
"""It has thousands of partitions when a whole run is near its end, and no room left in 128."""
KEEPS = {"log.retention.ms": "-1"}
"""Kept for ever, unless a topic says otherwise: records of tests tell of long ago. Else the broker
deletes them half a minute behind its start and each five minutes, so chance decides."""
_STAYS = {"broker.session.timeout.ms": "120000"}
"""It never starts anew, and a machine that stands still for seconds does not have it shut out."""


@contextmanager
def shared_broker(folder: Path) -> Iterator[str]:
    """The bootstrap servers of the one broker whose traces are in this folder."""
    address = folder / "address"
    with (folder / "users").open("w") as users:
        with _alone(folder / "starting"):
            fcntl.flock(users, fcntl.LOCK_SH)
            servers = _running(address)
            own = None if servers else _start(folder)
            if own is not None:
                servers = own.bootstrap_servers
                address.write_text(servers)
        try:
            yield servers
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if own is not None:
                _stop_behind_the_last(own, users, address)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _running(address: Path) -> str:
    servers = address.read_text() if address.exists() else ""
    # An owner that was killed left its address behind.
    return servers if servers and is_there(servers) else ""


def is_there(servers: str) -> bool:
    """Whether a broker is there, which may take its time before it says so.

    One that stalled is silent, or counts no broker, not even itself, until its controller hears it.
    """
    port = int(servers.rpartition(":")[2])
    give_up_at = time.monotonic() + _WITHIN_S
    while not (known := known_brokers(port, timeout_s=_ANSWER_WITHIN_S)):
        if _is_refused(port) or time.monotonic() > give_up_at:
            break
        time.sleep(_ASK_AGAIN_S)
    return known != set()


def _is_refused(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _ANSWER_WITHIN_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _start(folder: Path) -> EmbeddedBroker:
    broker = EmbeddedBroker(
        folder / f"by-{os.getpid()}", properties=KEEPS | _STAYS, heap_mib=_HEAP_MIB
    )
    broker.start()
    return broker


def _stop_behind_the_last(own: EmbeddedBroker, users: IO[str], address: Path) -> None:
    fcntl.flock(users, fcntl.LOCK_EX)
    address.unlink(missing_ok=True)
    # A stop would close thousands of logs, which nobody reads any more.
    own.kill()
