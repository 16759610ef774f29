"""Prepare Spark's folder as a session on this machine starts it: links to the installed one.

It leaves out the archive of Spark's own Python code. Spark puts that archive before the installed
code, and Python compiles what it imports from an archive anew in every process: 1.4 CPU seconds for
each worker instead of 0.4. On a loaded machine, a worker that starts a query may then exceed
Spark's ten seconds.

`python -m headrace.spark_jobs` adds the connectors, which Ivy would otherwise look for at every
start, and Java's archive of the classes that a job loads. The two save a third of the CPU time from
nothing to a first result.
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
"""Ten and more times Java's own thresholds. Code that runs for each row reaches them within a batch
all the same. Most code runs once for each task; compiling it would cost more than it saves: sixteen
CPU seconds in two million facts instead of five."""
_ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
"""More than a job loads. Java would search its whole heap each time it exceeds a smaller bound, six
times until it has loaded all classes."""
_FIRST_HEAP = "-Xms128m"
"""Java begins with a 64th of the machine's memory, whatever the job needs, and keeps it: 384 MiB of
24 GiB. A job with few rows needs 160 MiB, and one with many soon takes more."""
_FREE_RATIO = "HeapFreeRatio="
_LITTLE_FREE = (f"-XX:Min{_FREE_RATIO}20", f"-XX:Max{_FREE_RATIO}40")
"""How many percent of its heap Java keeps free. By itself it keeps 40 to 70, which is 40 MiB more
of a job with few rows, 80 with a million records a micro-batch, and takes no less CPU time."""
_ARCHIVE_STAYS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Java maps the archive where it was written for. By itself it moves the archive, and so writes to
160 MiB of its pages, which the system can neither drop nor share with another job. Java still moves
it where the place is taken."""
AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={most}"
    for what, most in {"bytes": 64 << 20, "string": 64 << 20, "collectionItems": 8 << 20}.items()
)
"""Avro allocates the size that a value states before it checks whether so many bytes are there.
Without a limit, a value of ten bytes could ask for two gigabytes and end the process."""
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_TEMPORARY, _TEMPORARY_OPTION = Path("/tmp"), "-Djava.io.tmpdir="  # noqa: S108 (Java's own choice)


def spark_home() -> Path:
    """Return the folder with connectors if it was prepared, else make the one without."""
    prepared = prepared_home()
    return prepared if prepared.is_dir() else _make(_folder(), {})


def prepared_home() -> Path:
    """Return the path of the folder with connectors, whether it exists or not."""
    return _folder(*CONNECTORS)


def prepare_home(connectors: Mapping[str, Path]) -> Path:
    """Make the folder with these connectors, and remove folders of environments that are gone."""
    for old in _caches().glob("spark-*/"):
        if not (old / "bin").exists():
            shutil.rmtree(old, ignore_errors=True)
            for archive in archives_of(old):
                archive.unlink(missing_ok=True)
    return _make(prepared_home(), connectors)


def ivy_settings() -> dict[str, str]:
    """Return where Ivy keeps its files, if it cannot write to the user's own folder."""
    is_ours = os.access(Path.home(), os.W_OK)
    return {} if is_ours else {"spark.jars.ivy": str(_caches() / "ivy")}


def connectors_of(home: Path) -> list[Path]:
    """Return the jars in such a folder that are not Spark's."""
    return [jar for jar in (home / "jars").iterdir() if not jar.is_symlink()]


def archives_of(home: Path) -> list[Path]:
    """Return all archives that were written for this folder."""
    return [*home.parent.glob(f"{home.name}-*.jsa")]


def class_archive(home: Path) -> Path:
    """Return the path of the class archive of this folder and this Java, whether it exists or not.

    Java ignores an archive of another Java, and one whose jars were written anew since, as a
    reinstallation of Spark does.
    """
    java = java_program()
    parts = [str(home)]
    if java is not None:
        parts.append(f"{os.path.realpath(java)} {Path(java).stat().st_mtime_ns}")
    for jar in sorted((home / "jars").glob("*.jar")):
        found = jar.stat()
        parts.append(f"{jar.name} {found.st_mtime_ns} {found.st_size}")
    return home.with_name(f"{home.name}-{crc32(' '.join(parts).encode()):08x}.jsa")


def java_options(home: Path, given: str) -> str:
    """Return Java's options: ours first, then the given ones."""
    options = [*_COMPILE_LATER, _ROOM_FOR_CLASSES, _FIRST_HEAP, AVRO_LIMITS]
    archive = class_archive(home)
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", *_ARCHIVE_STAYS]
    parts = " ".join([given, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])
    if not _COLLECTOR.search(parts):
        # Java's own choice takes a sixth more CPU time, for short pauses that no job needs.
        small = (os.cpu_count() or 1) <= _SMALL_CORES
        options.append("-XX:+UseSerialGC" if small else "-XX:+UseParallelGC")
        if small and _FREE_RATIO not in parts:
            options += _LITTLE_FREE
    if _TEMPORARY_OPTION not in parts:
        options += _temporary_files(_TEMPORARY)
    return " ".join(options)


def _temporary_files(usual: Path) -> list[str]:
    """Choose a folder of ours where no library may be loaded from the usual one.

    RocksDB's library lies in a jar. Java unpacks it among the temporary files, and loads it there.
    """
    if not os.statvfs(usual).f_flag & os.ST_NOEXEC:
        return []
    folder = _caches() / "temporary"
    folder.mkdir(parents=True, exist_ok=True)
    return [f"{_TEMPORARY_OPTION}{folder}"]


def _caches() -> Path:
    return Path(cache_folder(os.environ, str(Path.home())))


def _folder(*connectors: str) -> Path:
    parts = "\n".join([str(Path(pyspark.__file__).parent), *connectors])
    return _caches() / f"spark-{pyspark.__version__}-{crc32(parts.encode()):08x}"


def _make(home: Path, connectors: Mapping[str, Path]) -> Path:
    if home.is_dir():
        return home
    made = None
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix="making-spark-", dir=home.parent))
        _fill(made, connectors)
    except OSError as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        message = (
            f"{home.parent}, where Spark's folder is made once, cannot be written to"
            f" ({error.strerror}); set HEADRACE_CACHE to a folder that can"
        )
        raise SettingsInvalid(message) from error
    try:
        made.rename(home)
    except OSError:
        # Another process made it meanwhile.
        shutil.rmtree(made)
    return home


def _fill(made: Path, connectors: Mapping[str, Path]) -> None:
    """Put links to the installed Spark into a folder, and the connectors themselves."""
    installed = Path(pyspark.__file__).parent
    for each in installed.iterdir():
        if each.name not in {"python", "jars"}:
            (made / each.name).symlink_to(each)
    (made / "jars").mkdir()
    for jar in sorted((installed / "jars").iterdir()):
        (made / "jars" / jar.name).symlink_to(jar)
    for name, jar in connectors.items():
        shutil.copy(jar, made / "jars" / name)
