"""A first start finds all of it done ahead, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.services.broker import prepare as preparing
from headrace.services.broker.archive import class_archive
from headrace.services.broker.java import Java
from headrace.services.broker.storage import kept_checkpoint


class SlowBroker:
    """One that has to be killed while it writes its archive, or goes in time."""

    goes = False

    def __init__(self, _folder: Path, *, java_options: tuple[str, ...], version: None) -> None:
        """Note where to write."""
        del version
        (written,) = (one for one in java_options if one.startswith("-XX:ArchiveClassesAtExit="))
        self._written = Path(written.partition("=")[2])
        self.brokers = [self]

    def start(self) -> None:
        """Start at once."""

    def stop(self, _within_s: float) -> bool:
        """Write as much as there is time for."""
        self._written.write_text("whole" if self.goes else "ha")
        return self.goes


def test_a_cache_that_cannot_be_written_to_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "find_java", lambda: Java("java", "17"))
    monkeypatch.setattr(preparing, "kafka_jars", lambda *_, **__: tmp_path / "absent" / "jars")
    monkeypatch.setattr(preparing, "EmbeddedBroker", SlowBroker)
    told: list[str] = []
    preparing.prepare(told.append)
    assert told == []


def test_an_archive_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars, java = tmp_path / "jars", Java("java", "17")
    archive, checkpoint = class_archive(java, jars), kept_checkpoint(jars)
    checkpoint.touch()
    monkeypatch.setattr(preparing, "find_java", lambda: java)
    monkeypatch.setattr(preparing, "kafka_jars", lambda *_, **__: jars)
    monkeypatch.setattr(preparing, "EmbeddedBroker", SlowBroker)
    preparing.prepare(lambda _: None)
    assert [*tmp_path.iterdir()] == [checkpoint]
    monkeypatch.setattr(SlowBroker, "goes", True)
    preparing.prepare(lambda _: None)
    assert archive.read_text() == "whole"
