"""A Java that Spark does not run on is a sentence, before anything is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.contracts.errors import ProgramMissing
from headrace.spark_jobs.java import check_java
from tests.fake_java import put_java


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A process remembers the Java that fits."""
    check_java.cache_clear()
    yield
    check_java.cache_clear()


@pytest.mark.parametrize("says", ["17.0.19", "21", "21.0.8"])
def test_a_java_that_spark_runs_on_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    put_java(tmp_path / "bin", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


@pytest.mark.parametrize(("says", "version"), [("1.8.0_292", 1), ("11.0.2", 11), ("25.0.3", 25)])
def test_an_older_and_a_newer_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    java = put_java(tmp_path / "bin", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ProgramMissing) as refused:
        check_java()
    assert str(refused.value) == (
        f"Spark cannot run on Java {version} ({java}). Install Java 17 or 21 (on Debian and Ubuntu:"
        " openjdk-17-jre-headless), or set JAVA_HOME to where one is."
    )


def test_a_missing_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"and JAVA_HOME={tmp_path} has no bin/java. Install"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match=r"and there is no java on PATH\. Install"):
        check_java()


def test_the_preparation_refuses_a_newer_java_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(tmp_path / "bin", "25.0.3")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "headrace.spark_jobs"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Spark cannot run on Java 25 (")
    assert done.stderr.count("\n") == 1
