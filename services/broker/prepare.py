"""All that a first start would wait for, done ahead."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from headrace.services.broker.archive import class_archive
from headrace.services.broker.embedded import LIGHT_JAVA, EmbeddedBroker
from headrace.services.broker.jars import KafkaVersion, kafka_jars
from headrace.services.broker.java import find_java
from headrace.services.broker.storage import CHECKPOINT, kept_checkpoint

_ARCHIVED_WITHIN_S = 180.0


def prepare(tell: Callable[[str], None], version: KafkaVersion | None = None) -> None:
    """Fetch the jars, and keep what each broker begins with; quick where that was done."""
    java, jars = find_java(), kafka_jars(tell, version=version)
    if not os.access(jars.parent, os.W_OK):
        # Somebody else prepared it, and a start takes longer without the rest.
        return
    checkpoint = kept_checkpoint(jars)
    if not checkpoint.exists():
        tell("first records of a broker")
        _prepare_once_and_keep(checkpoint, version)
    archive = class_archive(java, jars)
    if not archive.exists():
        tell("archive of classes, for fast starts")
        _run_once_and_archive(archive, version)


# Two processes may do either at once; each renames a whole file, and any will do.


def _prepare_once_and_keep(checkpoint: Path, version: KafkaVersion | None) -> None:
    with TemporaryDirectory(dir=checkpoint.parent, prefix="preparing-") as temporary:
        broker = EmbeddedBroker(Path(temporary, "broker"), version=version)
        broker.prepare()
        kept = Path(temporary, checkpoint.name)
        copyfile(broker.brokers[0].data / CHECKPOINT, kept)
        kept.rename(checkpoint)


def _run_once_and_archive(archive: Path, version: KafkaVersion | None) -> None:
    with TemporaryDirectory(dir=archive.parent, prefix="archiving-") as temporary:
        written = Path(temporary, archive.name)
        options = (*LIGHT_JAVA, f"-XX:ArchiveClassesAtExit={written}", "-Xlog:cds=off")
        folder = Path(temporary, "broker")
        broker = EmbeddedBroker(folder, java_options=options, version=version)
        try:
            broker.start()
        finally:
            went = broker.brokers[0].stop(_ARCHIVED_WITHIN_S)
        # One that had to be killed has written half of it, or nothing; the next time may be better.
        if went:
            written.rename(archive)
