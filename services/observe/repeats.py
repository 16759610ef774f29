"""A line that libraries log again and again appears once in a while, with a count.

While a broker is away, its clients log it a hundred times a second: the lines would fill a disk,
and a core would do nothing but write them. The next line of the kind counts those that were left
out; if none comes, a line of its own does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from threading import Lock, Timer

from headrace.services.observe.redaction import plain

AGAIN_AFTER_S = 10.0
_KNOWN_MAX = 500


class _Said:
    """A message that was said."""

    def __init__(self, record: logging.LogRecord, at_s: float) -> None:
        self.last = record
        self.at_s = at_s
        self.held_back = 0


class Repeats(logging.Filter):
    """Lets one message of a library through, and then none like it for a while."""

    def __init__(
        self,
        libraries: tuple[str, ...],
        now_s: Callable[[], float],
        emit: Callable[[logging.LogRecord], object],
    ) -> None:
        """Hold back repetitions of these loggers and those below them."""
        super().__init__()
        self._libraries = libraries
        self._now_s = now_s
        self._emit = emit
        self._said: dict[tuple[str, str], _Said] = {}
        self._lock = Lock()
        self._timer: Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let a message through; what was held back is counted in it."""
        if record.name.partition(".")[0] not in self._libraries:
            return True
        message, now_s = (record.name, str(record.msg)), self._now_s()
        with self._lock:
            said = self._said.get(message)
            if said is not None and now_s - said.at_s < AGAIN_AFTER_S:
                said.held_back += 1
                said.last = copy(record)
                self._tell_later()
                return False
            if said is not None and said.held_back:
                record.msg = _counted(record, said.held_back)
            if len(self._said) >= _KNOWN_MAX:
                self._said.clear()
            self._said[message] = _Said(record, now_s)
        return True

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = Timer(AGAIN_AFTER_S, self.tell)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Say nothing later: there is nowhere to write it any more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def tell(self) -> None:
        """Say what was held back, if nothing like it has come since that counts it."""
        told, now_s = [], self._now_s()
        with self._lock:
            self._timer = None
            for said in self._said.values():
                if said.held_back and now_s - said.at_s >= AGAIN_AFTER_S:
                    said.last.msg = _counted(said.last, said.held_back)
                    told.append(said.last)
                    said.at_s, said.held_back = now_s, 0
            if any(said.held_back for said in self._said.values()):
                self._tell_later()
        for record in told:
            self._emit(record)


def _counted(record: logging.LogRecord, times: int) -> str:
    """Return the message with a count in its first line, which is the one that is shown."""
    first, newline, rest = str(plain(record.msg)).partition("\n")
    return f"{first} (and {times} times since the last line){newline}{rest}"
