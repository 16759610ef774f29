"""Kafka's jars: named by a POM, fetched by Maven once, and kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from headrace.contracts import cache
from headrace.contracts.errors import BrokerFailed, ProgramMissing, SettingsInvalid

KafkaVersion = Literal["4.3.1", "3.9.1"]
"""Those that everything is tried with, the newest first."""
VERSIONS: tuple[KafkaVersion, ...] = get_args(KafkaVersion)
VERSION_VARIABLE = "HEADRACE_KAFKA_VERSION"
POM = Path(__file__).with_name("pom.xml")
_TAIL_LINES = 5
_DOWNLOADED = re.compile(r"Downloaded from .*/(\S+\.jar) ")


def cache_folder() -> Path:
    """Where headrace keeps what it fetched."""
    return Path(cache.cache_folder(os.environ, str(Path.home())))


def _say_nothing(_step: str) -> None:
    pass


def kafka_version() -> KafkaVersion:
    """The one that HEADRACE_KAFKA_VERSION names, or else the newest."""
    named = os.environ.get(VERSION_VARIABLE) or VERSIONS[0]
    for version in VERSIONS:
        if version == named:
            return version
    message = (
        f"{VERSION_VARIABLE}={named} is no Kafka that headrace starts; write"
        f" {' or '.join(VERSIONS)}"
    )
    raise SettingsInvalid(message)


def kafka_jars(
    tell: Callable[[str], None] = _say_nothing, pom: Path = POM, version: KafkaVersion | None = None
) -> Path:
    """The folder of Kafka's jars; `tell` hears each step where they have to be fetched first."""
    version = version or kafka_version()
    name = f"kafka-{version}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    jars = cache_folder() / name
    if jars.is_dir():
        return jars
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with _locked(jars.with_name(f"{name}.lock")):
            # Another process may have fetched them while this one waited for the lock.
            if not jars.is_dir():
                _fetch(jars, pom, version, tell)
    except OSError as error:
        message = (
            f"{jars.parent}, where what is fetched is kept, cannot be written to"
            f" ({error.strerror}); set HEADRACE_CACHE to a folder that can"
        )
        raise SettingsInvalid(message) from error
    return jars


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(jars: Path, pom: Path, version: str, tell: Callable[[str], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        message = (
            f"The jars of Kafka {version} are not in {jars.parent}, and Maven, which fetches"
            " them, is not installed. Install it (on Debian and Ubuntu: maven), or set"
            " HEADRACE_CACHE to a folder that has them."
        )
        raise ProgramMissing(message)
    # The folder appears whole or not at all: it is filled beside its place, and then renamed.
    with TemporaryDirectory(dir=jars.parent, prefix="fetching-") as temporary:
        folder = Path(temporary, "jars")
        command = [maven, "--batch-mode", "--strict-checksums", f"--file={pom}"]
        command.append(f"-Dkafka={version}")
        if not os.access(Path.home(), os.W_OK):
            # There it would keep what it fetches, and fails where it may not.
            command.append(f"-Dmaven.repo.local={temporary}/maven")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*command, *goal, f"-DoutputDirectory={folder}"], version, tell)
        folder.rename(jars)


def _run(command: list[str], version: str, tell: Callable[[str], None]) -> None:
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603 - Maven, found on PATH
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as maven:
        for line in maven.stdout or ():
            lines.append(line.rstrip())
            downloaded = _DOWNLOADED.search(line)
            if downloaded is not None:
                tell(downloaded[1])
    if maven.returncode != 0:
        errors = [line for line in lines if line.startswith("[ERROR]")] or lines
        message = "\n".join(
            [f"Maven could not fetch Kafka {version}; it says:", *errors[:_TAIL_LINES]]
        )
        raise BrokerFailed(message)
