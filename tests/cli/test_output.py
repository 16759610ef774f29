"""The output of a command may be read in part, or have no room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_signals import file

__all__ = ["file"]
_COMMAND = [sys.executable, "-c", "from headrace.services.cli import main; main()"]


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


SCENARIO = """\
```scenario
reorder: {grace: 1s}
# key  time  -> leaves
a      1s    ->
```
"""


@pytest.mark.parametrize(
    ("name", "encoding", "shown"),
    [(b"caf\xc3\xa9", "ascii", "caf\\xe9"), (b"caf\xe9", "utf-8", "caf\\udce9")],
)
def test_a_name_that_cannot_be_printed_is_printed_by_its_numbers(
    tmp_path: Path, name: bytes, encoding: str, shown: str
) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    (folder / "clicks.scenario.md").write_text(SCENARIO)
    done = subprocess.run(
        [*_COMMAND, "test", str(folder)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert f"/{shown}/clicks.scenario.md: " in done.stdout.decode()


def ended(words: list[str], output: int, unbuffered: str) -> tuple[int, str]:
    """The exit code of a command with this output, and what it says beside it."""
    done = subprocess.run(
        [*_COMMAND, *words],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [[], ["--acls", "User:ada"]])
def test_a_command_whose_reader_has_enough_ends_without_a_word(
    file: Path, unread: int, words: list[str], unbuffered: str
) -> None:
    found = ended(["plan", str(file), *words], unread, unbuffered)
    assert found == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file without room")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_without_room_for_what_it_prints_says_so(file: Path, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = ended(["plan", str(file)], full.fileno(), unbuffered)
    sentence = "what is printed cannot be written (No space left on device); make room for it\n"
    assert (code, said) == (4, sentence)


def test_a_mistake_is_told_though_nobody_reads_what_went_before(
    tmp_path: Path, unread: int
) -> None:
    code, said = ended(["test", str(tmp_path / "absent.scenario.md")], unread, "")
    assert code == 2
    assert said.endswith("there is no such file; check the name and the folder\n")
    assert len(said.splitlines()) == 1
