"""Send the log of Spark, Java and the Python workers to a file; the terminal shows only ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

from headrace.contracts.errors import SettingsInvalid

_OUT, _ERRORS = 1, 2


def log_file(name: str, chosen: Path | None) -> Path:
    """Return the chosen file, or a new temporary one, and say where it is."""
    try:
        if chosen is not None:
            chosen.open("ab").close()
            file = chosen
        else:
            descriptor, path = mkstemp(prefix=f"headrace-{name}-", suffix=".log")
            os.close(descriptor)
            file = Path(path)
    except OSError as error:
        where = "a temporary file" if chosen is None else f"`{chosen}`"
        message = (
            f"Spark's log cannot be written to {where}: {error.strerror}; name a file with `--log`"
        )
        raise SettingsInvalid(message) from error
    sys.stderr.write(f"Spark's own log is in {file}\n")
    return file


@contextmanager
def started_into(log: Path) -> Iterator[None]:
    """Have all processes that start meanwhile, and their children, write to the log for good."""
    kept = os.dup(_OUT), os.dup(_ERRORS)
    _flush()
    with log.open("ab") as file:
        os.dup2(file.fileno(), _OUT)
        os.dup2(file.fileno(), _ERRORS)
    try:
        yield
    finally:
        _flush()
        for before, own in zip(kept, (_OUT, _ERRORS), strict=True):
            os.dup2(before, own)
            os.close(before)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
