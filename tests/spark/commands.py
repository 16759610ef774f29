"""Commands of `headrace`, one after another in one process: Java starts once for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.services.cli import main
from tests.spark.driver import QUICK_JAVA

_ENDED = "the command ended with "


class Ended(NamedTuple):
    """One command that has ended."""

    exit_code: int
    said: list[str]
    """Its lines, on both of its outputs."""


def run_commands(
    folder: Path, commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> None:
    """Give a process commands in a folder, as a shell would; a driver runs this."""
    os.chdir(folder)
    java = f"{os.environ['JDK_JAVA_OPTIONS']} {QUICK_JAVA}"
    os.environ.update(environment, JDK_JAVA_OPTIONS=java)
    for words in commands:
        sys.argv = ["headrace", *words]
        exit_code: object = 0
        try:
            main()
        except SystemExit as leaves:
            exit_code = leaves.code or 0
        print(f"{_ENDED}{exit_code}", flush=True)


def ended(log: str) -> list[Ended]:
    """Read from a driver's log how each command has ended."""
    found: list[Ended] = []
    said: list[str] = []
    for line in log.splitlines():
        if line.startswith(_ENDED):
            found.append(Ended(int(line.removeprefix(_ENDED)), said))
            said = []
        else:
            said.append(line)
    return found
