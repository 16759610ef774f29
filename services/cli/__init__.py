"""The `headrace` command."""

from __future__ import annotations

import sys

from contracts.errors import HeadraceError
from services.cli.app import make_app


def main() -> None:
    """Run the command that the arguments name; whatever goes wrong is one sentence a problem."""
    words = sys.argv[1:]
    try:
        make_app(words)(words)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
