"""The pages at the top, and what stands in them: files to be written, commands to be run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.architecture.source import ROOT

_BLOCK = re.compile(r"(?:<!-- (runnable|broker) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w-]+\.(?:yaml|py))")


def blocks(page: str, language: str, *marks: str) -> list[str]:
    """Return the blocks of a page in a language; with marks, those that have one of them.

    The mark `runnable` is of commands that run anywhere, `broker` of what needs a broker.
    """
    found = _BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [text for mark, kind, text in found if kind == language and (not marks or mark in marks)]


def named_files(page: str) -> dict[str, str]:
    """Return those blocks of a page which begin with a file's name, by that name."""
    texts = blocks(page, "yaml") + blocks(page, "python")
    return {named[1]: text for text in texts if (named := _FILE_NAME.match(text))}


def write_files(page: str, folder: Path) -> None:
    """Write the files of a page into a folder."""
    for name, text in named_files(page).items():
        (folder / name).write_text(text)


def installed() -> dict[str, str]:
    """The environment of who installed us: our commands are on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def run_there(command: list[str], folder: Path) -> str:
    """Run one of our commands in a folder; what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=installed(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
