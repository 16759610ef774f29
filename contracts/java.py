"""Java, as its programs know it: which one this is, and what is said where there is none."""

from __future__ import annotations

import re

from headrace.contracts.errors import ProgramMissing

_VERSION = re.compile(r'version "(\d+)')


def java_version(says: str) -> int:
    """17, 21 and so on; before Java 9 it began with "1.", which is too old in any case."""
    match = _VERSION.search(says)
    return int(match[1]) if match else 0


def no_java(who: str, home: str | None, what_to_do: str) -> ProgramMissing:
    """None was found in the folder that JAVA_HOME says, or else on PATH."""
    where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH"
    return ProgramMissing(f"{who} needs Java, and {where}. {what_to_do}")


def unfit_java(who: str, version: int, program: str, what_to_do: str) -> ProgramMissing:
    """The one that was found is too old or too new."""
    return ProgramMissing(f"{who} cannot run on Java {version} ({program}). {what_to_do}")
