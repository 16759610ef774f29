"""The Java that Spark starts on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

from contracts.errors import ProgramMissing

_FITS = range(17, 23)
"""Behind them, Java has left out what Hadoop asks to learn who its user is."""
_VERSION = re.compile(r'version "(\d+)')
_WHAT_TO_DO = (
    "Install Java 17 or 21 (on Debian and Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to"
    " where one is."
)


def java_program() -> str | None:
    """Where it is, None where there is none."""
    found = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{found}/bin") if found else shutil.which("java")


@cache
def check_java() -> None:
    """Refuse a machine on whose Java Spark does not run."""
    java = java_program()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH"
        message = f"Spark needs Java, and {where}. {_WHAT_TO_DO}"
        raise ProgramMissing(message)
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = _VERSION.search(done.stderr)
    # Before Java 9 a version began with "1.".
    version = int(found[1]) if found else 0
    if version not in _FITS:
        message = f"Spark cannot run on Java {version} ({java}). {_WHAT_TO_DO}"
        raise ProgramMissing(message)
