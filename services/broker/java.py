"""Finding a Java that Kafka runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import NamedTuple

from headrace.contracts.java import java_version, no_java, unfit_java

_JAVA_VERSION_MIN = 17
_WHO = "The embedded broker"
_WHAT_TO_DO = (
    f"Install Java {_JAVA_VERSION_MIN} or newer (on Debian and Ubuntu: openjdk-17-jre-headless),"
    " or set JAVA_HOME."
)


class Java(NamedTuple):
    """Where it is, and what it says it is."""

    path: str
    says: str

    @property
    def version(self) -> int:
        """17, 21 and so on."""
        return java_version(self.says)


@cache
def find_java() -> Java:
    """The Java of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise no_java(_WHO, home, _WHAT_TO_DO)
    done = subprocess.run(  # noqa: S603 - the user's own Java
        [found, "-version"],
        stdout=subprocess.PIPE,
        # Some of Java's complaints are on one, some on the other.
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    java = Java(found, done.stdout)
    if java.version < _JAVA_VERSION_MIN:
        raise unfit_java(_WHO, java.says, found, _WHAT_TO_DO)
    return java
