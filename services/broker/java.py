"""Finding a Java that Kafka runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from typing import NamedTuple

from contracts.errors import ProgramMissing

_JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
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
        """17, 21 and so on; before Java 9 it began with "1.", which is too old in any case."""
        match = _VERSION.search(self.says)
        return int(match[1]) if match else 0


@cache
def find_java() -> Java:
    """The Java of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH"
        message = f"The embedded broker needs Java, and {where}. {_WHAT_TO_DO}"
        raise ProgramMissing(message)
    done = subprocess.run(  # noqa: S603 - the user's own Java
        [found, "-version"], capture_output=True, text=True, check=False
    )
    java = Java(found, done.stderr)
    if java.version < _JAVA_VERSION_MIN:
        message = f"The embedded broker cannot run on Java {java.version} ({found}). {_WHAT_TO_DO}"
        raise ProgramMissing(message)
    return java
