"""A Java that fits is found; any other is a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.contracts.errors import ProgramMissing
from headrace.services.broker.java import find_java
from tests.fake_java import put_java


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A process remembers the Java that it has found."""
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(tmp_path / "bin", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = find_java()
    assert (java.path, java.version) == (str(tmp_path / "bin" / "java"), 21)


@pytest.mark.parametrize(("says", "version"), [("11.0.2", 11), ("1.8.0_292", 1)])
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    put_java(tmp_path / "bin", says)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with pytest.raises(ProgramMissing, match=rf"cannot run on Java {version} .*Install Java 17"):
        find_java()


def test_a_java_that_refuses_its_options_is_told_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\n"
        "echo 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1' >&2\n"
        "echo 'Error occurred during initialization of VM'\n"
        "echo 'Too small maximum heap'\n"
        "exit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ProgramMissing) as refused:
        find_java()
    assert str(refused.value).startswith(
        f"The embedded broker needs Java, and {java} does not start: Too small maximum heap."
        " Correct the options in JDK_JAVA_OPTIONS and JAVA_TOOL_OPTIONS if they are the cause."
    )


def test_a_java_home_without_java_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"JAVA_HOME={tmp_path} has no bin/java"):
        find_java()


def test_no_java_at_all_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match="there is no java on PATH"):
        find_java()
