"""What libraries say again and again is said once in a while, with how often it was said.

While a broker is away its clients tell of it a hundred times a second: as many lines as would fill
a disk, and a core that does nothing but write them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

AGAIN_AFTER_S = 10.0
_KNOWN_MAX = 500


class Repeats(logging.Filter):
    """Lets one message of a library through, and then none like it for a while."""

    def __init__(self, libraries: tuple[str, ...], now_s: Callable[[], float]) -> None:
        """Hold back repetitions of these loggers and those below them."""
        super().__init__()
        self._libraries = libraries
        self._now_s = now_s
        self._said: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let a message through; what was held back is counted in it."""
        if record.name.partition(".")[0] not in self._libraries:
            return True
        message, now_s = (record.name, str(record.msg)), self._now_s()
        said = self._said.get(message)
        if said is not None and now_s - said[0] < AGAIN_AFTER_S:
            said[1] += 1
            return False
        if said is not None and said[1]:
            record.msg = f"{record.msg} (and {int(said[1])} times since the last line)"
        if len(self._said) >= _KNOWN_MAX:
            self._said.clear()
        self._said[message] = [now_s, 0]
        return True
