"""Find the Java with which Spark starts on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from headrace.contracts.java import java_version, no_java, unfit_java

_WHO = "Spark"
_FITS = range(17, 23)
"""Later versions lack what Hadoop calls to find the name of its user."""
_WHAT_TO_DO = (
    "Install Java 17 or 21 (on Debian and Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to"
    " where one is."
)


def java_program() -> str | None:
    """Return the path of Java, None if there is none."""
    found = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{found}/bin") if found else shutil.which("java")


@cache
def check_java() -> None:
    """Refuse a machine without a Java that Spark runs on."""
    java = java_program()
    if java is None:
        raise no_java(_WHO, os.environ.get("JAVA_HOME"), _WHAT_TO_DO)
    done = subprocess.run(  # noqa: S603 - the user's own Java
        [java, "-version"],
        stdout=subprocess.PIPE,
        # Some of Java's complaints are on one, some on the other.
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if java_version(done.stdout) not in _FITS:
        raise unfit_java(_WHO, done.stdout, java, _WHAT_TO_DO)
