"""A pipeline's folder of state belongs to one process.

Two that have it have one name in the group as well, or take each other's databases. So whoever
comes later ends before it joins, and the first goes on undisturbed.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.contracts.errors import StateLocked, StateUnavailable
from headrace.contracts.hops import FILES_BESIDE_HOPS
from headrace.services.group.info import CLIENT_BYTES

_CLIENT, _CLIENT_NEW, _LOCK = FILES_BESIDE_HOPS
_IS_CLIENT = re.compile(rb"[0-9a-f]{%d}" % (2 * CLIENT_BYTES))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Have a folder to ourselves; a process that dies lets go of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise _unavailable(folder, problem) from problem
    try:
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        message = (
            f"the state folder {folder} is held by another process ({problem.strerror});"
            " stop that one, or give this one a HEADRACE_STATE_FOLDER of its own"
        )
        raise StateLocked(message) from problem


def client_of(folder: Path) -> bytes:
    """Return the name by which the whole group knows a folder's copies of state."""
    file = folder / _CLIENT
    try:
        # A full disk may have cut it short, and a lost machine may have left zeros in it.
        if not file.exists() or not _IS_CLIENT.fullmatch(file.read_bytes()):
            folder.mkdir(parents=True, exist_ok=True)
            made = folder / _CLIENT_NEW
            made.write_text(uuid.uuid4().hex, "ascii")
            made.replace(file)
        return bytes.fromhex(file.read_text("ascii"))
    except OSError as problem:
        raise _unavailable(folder, problem) from problem


def unreadable(folder: Path, problem: OSError) -> StateUnavailable:
    """Return the error for a folder of state that cannot be looked into."""
    return StateUnavailable(
        f"the state folder {folder} cannot be read ({problem.strerror}); check it"
    )


def _unavailable(folder: Path, problem: OSError) -> StateUnavailable:
    return StateUnavailable(
        f"the state folder {folder} cannot be written to ({problem.strerror});"
        " check that the disk has room, and the folder's permissions"
    )
