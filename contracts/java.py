"""Java: which version a program reports, and the error where there is none or a wrong one."""

from __future__ import annotations

import re

from headrace.contracts.errors import ProgramMissing

_VERSION = re.compile(r'version "(\d+)')


def java_version(says: str) -> int:
    """Return 17, 21 and so on. Before Java 9 versions began with "1.", which is too old anyway."""
    match = _VERSION.search(says)
    return int(match[1]) if match else 0


def no_java(who: str, home: str | None, what_to_do: str) -> ProgramMissing:
    """Return the error for no Java in the folder of JAVA_HOME, or else on PATH."""
    where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH"
    return ProgramMissing(f"{who} needs Java, and {where}. {what_to_do}")


def unfit_java(who: str, version: int, program: str, what_to_do: str) -> ProgramMissing:
    """Return the error for a Java that is too old or too new."""
    return ProgramMissing(f"{who} cannot run on Java {version} ({program}). {what_to_do}")
