"""TLS contexts that follow the files they are made of.

Certificates are renewed by putting new files into the place of old ones, every few weeks or hours,
while we run. So each connection is made with the files as they are then; those that are open stay.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Self

from headrace.contracts.errors import SettingsInvalid
from headrace.services.observe.logs import logger as logger_of

_State = tuple[tuple[int, int, int] | None, ...]
logger = logger_of(__name__)


class FollowingContext(ssl.SSLContext):
    """Stands where one context is wanted, and makes each connection with a fresh one."""

    def __new__(cls, make: Callable[[], ssl.SSLContext], files: Collection[Path]) -> Self:
        """A context of these files, which can be read now."""
        del make, files
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Collection[Path]) -> None:
        self._make = make
        self._files = files
        self._seen = self._state()
        self._context = make()

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection of asyncio's."""
        return self._fresh().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Begin a connection over a socket."""
        return self._fresh().wrap_socket(*arguments, **options)

    def _fresh(self) -> ssl.SSLContext:
        state = self._state()
        if state != self._seen:
            try:
                self._context = self._make()
            except SettingsInvalid as problem:
                # Half of them may be written; what is whole then is taken by the next connection.
                logger.warning("renewed certificates cannot be read yet", why=str(problem))
            else:
                logger.info("certificates were renewed", files=[str(file) for file in self._files])
            self._seen = state
        return self._context

    def _state(self) -> _State:
        return tuple(map(_state_of, self._files))


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
