"""Spark's folder as a session on this machine starts it: links to the installed one, and more.

Left out is the archive of Spark's own Python code. Spark puts it before the same code as installed,
and Python compiles what it takes from an archive anew in every process: 1.4 CPU seconds for each
worker instead of 0.4. On a machine under load, a worker that starts a query may not do so within
Spark's ten seconds.

`python -m headrace.spark_jobs` adds the connectors, for which Ivy would else look at every start,
and Java's archive of the classes that a job loads: a third of the CPU time from nothing to a first
result.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from zlib import crc32

import pyspark

from headrace.contracts.cache import cache_folder
from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.java import java_program

if TYPE_CHECKING:
    from collections.abc import Mapping

_SMALL_CORES = 2
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=200000",
    "-XX:Tier4BackEdgeThreshold=2000000",
)
"""Ten and more times Java's own. What runs for each row is there within a batch all the same; what
runs for each task, and is most of the code, is never compiled for more than it gives back: five
CPU seconds in two million facts instead of sixteen."""
_ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
"""More than a job loads; Java would look through its whole heap each time it gets past a smaller
bound, six times until it has loaded all."""
AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={most}"
    for what, most in {"bytes": 64 << 20, "string": 64 << 20, "collectionItems": 8 << 20}.items()
)
"""Avro makes room for as much as a value says that it holds before it looks whether that is there:
a value of ten bytes would take the memory of a process that lets it ask for two gigabytes."""
_TOLD_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def spark_home() -> Path:
    """The folder with connectors, if it was prepared, or else the one without."""
    prepared = prepared_home()
    return prepared if prepared.is_dir() else _make(_folder(), {})


def prepared_home() -> Path:
    """Where the folder with connectors is, or would be."""
    return _folder(*CONNECTORS)


def prepare_home(connectors: Mapping[str, Path]) -> Path:
    """Make the folder with these connectors, and remove those of environments that are gone."""
    for old in _caches().glob("spark-*/"):
        if not (old / "bin").exists():
            shutil.rmtree(old, ignore_errors=True)
            for archive in archives_of(old):
                archive.unlink(missing_ok=True)
    return _make(prepared_home(), connectors)


def ivy_settings() -> dict[str, str]:
    """Where Ivy keeps what it fetches, if it may not in the user's own folder."""
    is_ours = os.access(Path.home(), os.W_OK)
    return {} if is_ours else {"spark.jars.ivy": str(_caches() / "ivy")}


def connectors_of(home: Path) -> list[Path]:
    """The jars in such a folder that are not Spark's."""
    return [jar for jar in (home / "jars").iterdir() if not jar.is_symlink()]


def archives_of(home: Path) -> list[Path]:
    """The archives that were ever written for this folder."""
    return [*home.parent.glob(f"{home.name}-*.jsa")]


def class_archive(home: Path) -> Path:
    """Where the archive of the classes of this folder is for this Java, or would be.

    Java ignores the archive of another Java, and of jars of which one was written anew, as all are
    by whoever installs Spark again.
    """
    java = java_program()
    told = [str(home)]
    if java is not None:
        told.append(f"{os.path.realpath(java)} {Path(java).stat().st_mtime_ns}")
    for jar in sorted((home / "jars").glob("*.jar")):
        found = jar.stat()
        told.append(f"{jar.name} {found.st_mtime_ns} {found.st_size}")
    return home.with_name(f"{home.name}-{crc32(' '.join(told).encode()):08x}.jsa")


def java_options(home: Path, given: str) -> str:
    """What Java is told before what is given."""
    options = [*_COMPILE_LATER, _ROOM_FOR_CLASSES, AVRO_LIMITS]
    archive = class_archive(home)
    if archive.exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    told = " ".join([given, *(os.environ.get(name, "") for name in _TOLD_JAVA)])
    if not _COLLECTOR.search(told):
        # Java's own choice spends a sixth more CPU time, and none of it on short pauses that
        # anybody waits for.
        small = (os.cpu_count() or 1) <= _SMALL_CORES
        options.append("-XX:+UseSerialGC" if small else "-XX:+UseParallelGC")
    return " ".join(options)


def _caches() -> Path:
    return Path(cache_folder(os.environ, str(Path.home())))


def _folder(*connectors: str) -> Path:
    told = "\n".join([str(Path(pyspark.__file__).parent), *connectors])
    return _caches() / f"spark-{pyspark.__version__}-{crc32(told.encode()):08x}"


def _make(home: Path, connectors: Mapping[str, Path]) -> Path:
    if home.is_dir():
        return home
    installed = Path(pyspark.__file__).parent
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix="making-spark-", dir=home.parent))
    except OSError as error:
        message = (
            f"{home.parent}, where Spark's folder is made once, cannot be written to"
            f" ({error.strerror}); set HEADRACE_CACHE to a folder that can"
        )
        raise SettingsInvalid(message) from error
    for each in installed.iterdir():
        if each.name not in {"python", "jars"}:
            (made / each.name).symlink_to(each)
    (made / "jars").mkdir()
    for jar in sorted((installed / "jars").iterdir()):
        (made / "jars" / jar.name).symlink_to(jar)
    for name, jar in connectors.items():
        shutil.copy(jar, made / "jars" / name)
    try:
        made.rename(home)
    except OSError:
        # Somebody else made it meanwhile.
        shutil.rmtree(made)
    return home
