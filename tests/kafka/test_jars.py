"""Kafka's jars are fetched once, whole or not at all, and what is missing is a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.contracts.errors import BrokerFailed, ProgramMissing, SettingsInvalid
from headrace.services.broker.jars import POM, VERSIONS, cache_folder, kafka_jars

MAVEN = """#!/bin/sh
echo called >> "{calls}"
for word; do case $word in -DoutputDirectory=*) folder=${{word#*=}};; esac; done
mkdir "$folder"
echo "[INFO] Downloaded from somewhere: host/one/one-1.jar (3 kB at 4 kB/s)"
for moment in 1 2 3 4 5 6 7 8 9 10; do
  [ "$(wc -l < "{calls}")" -lt {callers} ] && sleep 0.3
done
echo jar > "$folder/one-1.jar"
{ends}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HEADRACE_CACHE", str(folder))
    return folder


def _put_maven(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, callers: int = 1, ends: str = ""
) -> Path:
    """A program called mvn that does what Maven would; returns the file that counts its calls.

    It waits a while for so many callers: those who do not take turns meet there.
    """
    calls = folder / "calls"
    maven = folder / "mvn"
    maven.write_text(MAVEN.format(calls=calls, callers=callers, ends=ends))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return calls


def test_jars_are_fetched_once_and_each_is_told(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _put_maven(tmp_path, monkeypatch)
    told: list[str] = []
    jars = kafka_jars(told.append)
    assert kafka_jars(told.append) == jars
    assert jars.parent == cache
    assert [jar.name for jar in jars.iterdir()] == ["one-1.jar"]
    assert told == ["one-1.jar"]
    assert calls.read_text() == "called\n"


def test_two_processes_fetch_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _put_maven(tmp_path, monkeypatch, callers=2)
    command = [
        sys.executable,
        "-c",
        "from headrace.services.broker.jars import kafka_jars; kafka_jars()",
    ]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert calls.read_text() == "called\n"
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_a_fetch_that_fails_leaves_nothing_and_says_what_maven_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_maven(tmp_path, monkeypatch, ends="echo '[ERROR] No such host'; exit 1")
    with pytest.raises(BrokerFailed, match=r"could not fetch Kafka .*\n\[ERROR\] No such host"):
        kafka_jars()
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_without_maven_it_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match=r"Maven, which fetches them, is not installed\. Inst"):
        kafka_jars()
    assert cache.is_dir()


def test_the_cache_is_where_the_system_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "headrace"


def test_the_pom_names_no_place_to_fetch_from() -> None:
    assert "://" not in POM.read_text()


def test_a_cache_that_cannot_be_written_to_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        SettingsInvalid, match=r"\(Not a directory\); set HEADRACE_CACHE to a folder"
    ):
        kafka_jars()


@pytest.mark.usefixtures("cache")
def test_maven_keeps_nothing_in_a_home_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    _put_maven(tmp_path, monkeypatch, ends=f'echo "$@" >> "{words}"')
    monkeypatch.setenv("HOME", str(tmp_path))
    kafka_jars()
    assert "-Dmaven.repo.local=" not in words.read_text()
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    kafka_jars(version=VERSIONS[-1])
    assert "-Dmaven.repo.local=" in words.read_text()
