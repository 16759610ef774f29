"""The output of a command ends the command if nothing can be written to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from typing import Any, TextIO, cast

from headrace.contracts.errors import HeadraceError, OutputLost

_ENDED_BY_PIPE = 128 + signal.SIGPIPE
"""The exit code by which shells know a program that ended because its reader did."""


class _Output:
    """Standard output, which ends the command where it cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or end the command."""
        with self._taken():
            return self._stream.write(text)

    def flush(self) -> None:
        """Have all texts written, or end the command."""
        with self._taken():
            self._stream.flush()

    @contextmanager
    def _taken(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            # At its end Python would try once more, and say that it failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if isinstance(problem, BrokenPipeError):
                # The reader has enough, as `head` has.
                sys.exit(_ENDED_BY_PIPE)
            message = f"what is printed cannot be written ({problem.strerror}); make room for it"
            raise OutputLost(message) from problem


@contextmanager
def printing() -> Iterator[None]:
    """Have a command print, and see at its end that all of it was written."""
    if sys.stdout is None:
        # It was started without one, and Python prints nothing then.
        yield
        return
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal may lack a letter of a key, and a file's name may be no text at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    output = _Output(sys.stdout)
    with redirect_stdout(cast("TextIO", output)):
        try:
            yield
        except SystemExit:
            output.flush()
            raise
        except HeadraceError:
            # The error matters more than the output before it.
            with suppress(SystemExit, OutputLost):
                output.flush()
            raise
