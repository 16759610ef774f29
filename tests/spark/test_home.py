"""Spark's folder on this machine: made whole or not at all, and what Java is told of it."""

from __future__ import annotations

import os
from errno import ENOSPC
from os import utime
from pathlib import Path
from subprocess import run
from types import SimpleNamespace

import pytest

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs import __main__, home
from headrace.spark_jobs.java import java_program


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_the_folder_with_connectors_is_taken_once_it_is_there(tmp_path: Path) -> None:
    plain = home.spark_home()
    assert (plain / "bin" / "spark-submit").exists()
    assert not (plain / "python").exists()
    assert home.connectors_of(plain) == []
    jar = tmp_path / "group_connector-1.jar"
    jar.write_bytes(b"a jar")
    prepared = home.prepare_home({"connector-1.jar": jar})
    assert home.spark_home() == prepared == home.prepared_home()
    assert [each.name for each in home.connectors_of(prepared)] == ["connector-1.jar"]
    assert {each.name for each in (plain / "jars").iterdir()} < {
        each.name for each in (prepared / "jars").iterdir()
    }


def test_a_disk_that_fills_while_connectors_are_copied_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(_jar: Path, place: Path) -> None:
        place.write_bytes(b"half")
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr("shutil.copy", copy)
    with pytest.raises(
        SettingsInvalid, match=r"\(No space left on device\); set HEADRACE_CACHE to"
    ):
        home.prepare_home({"connector-1.jar": tmp_path / "connector-1.jar"})
    assert not list(tmp_path.iterdir())


def test_connectors_are_copied_into_a_new_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "connector-1.jar"
    jar.write_bytes(b"a jar")
    prepared = home.prepare_home({jar.name: jar})
    home.class_archive(prepared).touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("sys.argv", ["prepare", str(tmp_path / "new")])
    __main__.main()
    assert [each.name for each in (tmp_path / "new").iterdir()] == [jar.name]
    with pytest.raises(SettingsInvalid, match=r"`.+/new` \(File exists\); name another one"):
        __main__.main()


def test_folders_of_environments_that_are_gone_are_removed(tmp_path: Path) -> None:
    kept = home.spark_home()
    gone = tmp_path / "spark-4.0.5-0000"
    gone.mkdir()
    (gone / "bin").symlink_to(tmp_path / "nowhere")
    archive = gone.with_name("spark-4.0.5-0000-11.jsa")
    archive.touch()
    home.prepare_home({})
    assert kept.is_dir()
    assert not gone.exists()
    assert not archive.exists()


def test_java_is_told_of_an_archive_that_is_there() -> None:
    folder = home.spark_home()
    without = home.java_options(folder, "")
    assert "Archive" not in without
    home.class_archive(folder).touch()
    more = set(home.java_options(folder, "").split()) - set(without.split())
    assert f"-XX:SharedArchiveFile={home.class_archive(folder)}" in more
    assert "-XX:ArchiveRelocationMode=0" in more


def test_spark_installed_again_has_an_archive_of_its_own() -> None:
    folder = home.spark_home()
    before = home.class_archive(folder)
    assert home.class_archive(folder) == before
    jar = folder / "jars" / "again.jar"
    jar.write_bytes(b"a jar")
    with_jar = home.class_archive(folder)
    utime(jar, (1, 1))
    assert len({before, with_jar, home.class_archive(folder)}) == 3
    assert home.archives_of(folder) == []
    before.touch()
    assert home.archives_of(folder) == [before]


@pytest.mark.parametrize(("cores", "collector"), [(2, "Serial"), (16, "Parallel")])
def test_a_collector_is_chosen_unless_somebody_did(
    cores: int, collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert _collectors("-Xss4m") == [f"-XX:+Use{collector}GC"]
    assert _collectors("-XX:+UseZGC") == []
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    assert _collectors("") == []


@pytest.mark.parametrize(
    ("cores", "given", "kept"), [(2, "", 2), (2, "-XX:MinHeapFreeRatio=50", 0), (16, "", 0)]
)
def test_a_small_machine_keeps_little_free_unless_somebody_says_how_much(
    cores: int, given: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert home.java_options(home.spark_home(), given).count("HeapFreeRatio=") == kept


def _collectors(given: str) -> list[str]:
    options = home.java_options(home.spark_home(), given).split()
    return [option for option in options if option.endswith("GC")]


def test_libraries_are_unpacked_where_they_may_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    may_load, may_not = SimpleNamespace(f_flag=0), SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr("os.statvfs", lambda _folder: may_load)
    assert "java.io.tmpdir" not in home.java_options(home.spark_home(), "")
    monkeypatch.setattr("os.statvfs", lambda _folder: may_not)
    (option,) = home.java_options(home.spark_home(), "").split()[-1:]
    assert Path(option.removeprefix("-Djava.io.tmpdir=")).is_dir()
    assert "java.io.tmpdir" not in home.java_options(home.spark_home(), "-Djava.io.tmpdir=/mine")


def test_java_takes_all_that_it_is_told() -> None:
    java = java_program()
    assert java is not None
    told = home.java_options(home.spark_home(), "").split()
    # One that it did not know would end it, and every session with it.
    run([java, *told, "-version"], check=True, capture_output=True)


def test_ivy_keeps_nothing_in_a_home_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home.ivy_settings() == {}
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    assert home.ivy_settings() == {"spark.jars.ivy": str(tmp_path / "ivy")}
