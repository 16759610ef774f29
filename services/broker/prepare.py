"""All that a first start would wait for, done ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.services.broker.archive import class_archive
from headrace.services.broker.embedded import LIGHT_JAVA, EmbeddedBroker
from headrace.services.broker.jars import KafkaVersion, kafka_jars
from headrace.services.broker.java import find_java


def prepare(tell: Callable[[str], None], version: KafkaVersion | None = None) -> None:
    """Fetch the jars, and archive the classes that a broker loads; quick where that was done."""
    java, jars = find_java(), kafka_jars(tell, version=version)
    archive = class_archive(java, jars)
    if not archive.exists():
        tell("archive of classes, for fast starts")
        _run_once_and_archive(archive, version)


def _run_once_and_archive(archive: Path, version: KafkaVersion | None) -> None:
    # Two processes may do this at once; each renames a whole archive, and either will do.
    with TemporaryDirectory(dir=archive.parent, prefix="archiving-") as temporary:
        written = Path(temporary, archive.name)
        options = (*LIGHT_JAVA, f"-XX:ArchiveClassesAtExit={written}", "-Xlog:cds=off")
        folder = Path(temporary, "broker")
        broker = EmbeddedBroker(folder, java_options=options, version=version)
        try:
            broker.start()
        finally:
            broker.stop()
        written.rename(archive)
