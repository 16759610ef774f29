"""The `headrace` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

from cyclopts import App

from headrace.contracts.errors import HeadraceError
from headrace.services.cli.app import make_app
from headrace.services.cli.output import printing

_FIRST = 1
"""The process of a container: the system ends it by no signal that it does not handle itself."""


def main() -> None:
    """Run the command that the arguments name; whatever goes wrong is one sentence a problem."""
    words = sys.argv[1:]
    if os.getpid() == _FIRST:
        signal.signal(signal.SIGTERM, _end)
    try:
        with printing():
            _load(words)(words)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _load(words: Sequence[str]) -> App:
    """Load the command without searches for garbage: modules are none, and a sixth of the time."""
    gc.disable()
    try:
        return make_app(words)
    finally:
        gc.freeze()
        gc.enable()


def _end(number: int, _frame: object) -> None:
    """End as any other process would that is told to; a command that has more to do says so."""
    sys.exit(128 + number)
