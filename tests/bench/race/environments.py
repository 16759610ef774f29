"""The peers' needs: jars, classes, a Python environment. Made once, and kept in the cache.

A folder's name is the hash of what it is made from, so whatever changes is made anew.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.contracts.errors import ProgramMissing
from headrace.services.broker.jars import cache_folder
from headrace.services.broker.java import find_java

_PEERS = Path(__file__).parents[1] / "peers"
_STREAMS = _PEERS / "streams"
_QUIX = _PEERS / "quix"
_FLINK = _PEERS / "flink"
_POM = _STREAMS / "pom.xml"
_REQUIREMENTS = _QUIX / "requirements.txt"


def build_streams() -> None:
    """Fetch Kafka Streams and compile what races on it."""
    _made(_jars(), lambda folder: _fetch_jars(folder, _POM))
    _made(_classes(), _compile)


def streams_command(collector: str) -> list[str]:
    """Java with its own defaults but for the garbage collector, and a log of warnings."""
    path = f"{_classes()}:{_jars()}/*"
    warnings = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(find_java().path), f"-XX:+Use{collector}GC", warnings, "-classpath", path, "Race"]


def build_quix() -> None:
    """An environment with Quix Streams, from its pinned requirements."""
    _made(_quix(), lambda folder: _install(folder, _REQUIREMENTS))


def quix_python() -> Path:
    """The Python of that environment."""
    return _quix() / "bin" / "python"


def build_flink() -> None:
    """Fetch Flink and its connector to Kafka; the first time takes minutes, and says so."""
    if sys.version_info >= (3, 13):
        message = "Flink's package for Python needs Python 3.11 or 3.12; make PYTHON=python3.12 ..."
        raise ProgramMissing(message)
    if not flink_jars().is_dir():
        print("Flink, once: its connector to Kafka", flush=True)
        _made(flink_jars(), lambda folder: _fetch_jars(folder, _FLINK / "pom.xml"))
    if not _flink().is_dir():
        print("Flink, once: its environment, 800 MiB, a minute or more", flush=True)
        _made(_flink(), lambda folder: _install(folder, _FLINK / "requirements.txt"))


def flink_python() -> Path:
    """The Python of Flink's environment."""
    return _flink() / "bin" / "python"


def flink_jars() -> Path:
    """The folder of Flink's connector."""
    return _named("flink-jars", [_FLINK / "pom.xml"])


def _flink() -> Path:
    return _named("flink", [_FLINK / "requirements.txt"])


def _jars() -> Path:
    return _named("streams-jars", [_POM])


def _classes() -> Path:
    return _named("streams-classes", [_POM, *sorted(_STREAMS.glob("*.java"))])


def _quix() -> Path:
    return _named("quix", [_REQUIREMENTS])


def _named(name: str, files: Sequence[Path]) -> Path:
    content = b"".join(file.read_bytes() for file in files)
    return cache_folder() / "race" / f"{name}-{sha256(content).hexdigest()[:12]}"


def _made(folder: Path, make: Callable[[Path], None]) -> None:
    """The folder appears whole or not at all."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix="making-") as temporary:
            made = Path(temporary, "made")
            make(made)
            made.rename(folder)


def _fetch_jars(folder: Path, pom: Path) -> None:
    maven = _program("mvn", "maven")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    _run([maven, "--quiet", "--batch-mode", f"--file={pom}", *goal, f"-DoutputDirectory={folder}"])


def _compile(folder: Path) -> None:
    compiler = _program("javac", "openjdk-17-jdk-headless")
    files = [str(file) for file in sorted(_STREAMS.glob("*.java"))]
    _run([compiler, "-Xlint:all", "-Werror", "-d", str(folder), "-cp", f"{_jars()}/*", *files])


def _install(folder: Path, requirements: Path) -> None:
    venv.create(folder, with_pip=True)
    # The folder is renamed afterwards; nothing but `python -m` is used in it, which can bear that.
    python = str(folder / "bin" / "python")
    _run([python, "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        message = f"The race needs {name}. Install it (on Debian and Ubuntu: {package})."
        raise ProgramMissing(message)
    return found


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)
