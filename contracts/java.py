"""Java: which version a program reports, and the error where there is none or a wrong one."""

from __future__ import annotations

import re

from headrace.contracts.errors import ProgramMissing

_VERSION = re.compile(r'version "(\d+)')
_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
"""The variables from which every Java reads options."""
_ECHOES = re.compile("(NOTE: )?Picked up |Error occurred during initialization")


def java_version(says: str) -> int:
    """Return 17, 21 and so on, or 0 for a Java that says none.

    Before Java 9 versions began with "1.", which is too old anyway.
    """
    match = _VERSION.search(says)
    return int(match[1]) if match else 0


def no_java(who: str, home: str | None, what_to_do: str) -> ProgramMissing:
    """Return the error for no Java in the folder of JAVA_HOME, or else on PATH."""
    where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH"
    return ProgramMissing(f"{who} needs Java, and {where}. {what_to_do}")


def unfit_java(who: str, says: str, program: str, what_to_do: str) -> ProgramMissing:
    """Return the error for a Java that is too old or too new, or that does not start."""
    version = java_version(says)
    if version:
        return ProgramMissing(f"{who} cannot run on Java {version} ({program}). {what_to_do}")
    return ProgramMissing(
        f"{who} needs Java, and {program} does not start: {_complaint(says)}. Correct the options"
        f" in {' and '.join(_OPTIONS)} if they are the cause. {what_to_do}"
    )


def _complaint(says: str) -> str:
    """Return the first line that is no echo of options and no heading."""
    lines = (line.strip() for line in says.splitlines())
    kept = (line for line in lines if line and not _ECHOES.match(line))
    return next(kept, "it says nothing").removesuffix(".")
