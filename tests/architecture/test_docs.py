"""The pages at the top tell the truth: their commands, examples and snippets run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from contracts.pipeline import PipelineSpec
from tests.architecture.source import ROOT, make_targets

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
BLOCK = re.compile(r"(<!-- runnable -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
NAMED_TARGET = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


def _blocks(page: str, language: str, *, runnable: bool = False) -> list[str]:
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [text for mark, kind, text in found if kind == language and (mark or not runnable)]


def _run(command: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    named = NAMED_TARGET.findall((ROOT / page).read_text("utf-8"))
    assert [target for target in named if target not in make_targets()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_python_snippet_runs(page: str, tmp_path: Path) -> None:
    for text in _blocks(page, "python"):
        snippet = tmp_path / "snippet.py"
        snippet.write_text(text)
        _run([sys.executable, "-W", "error", str(snippet)], tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_every_pipeline_is_valid(page: str) -> None:
    written = [yaml.safe_load(text) for text in _blocks(page, "yaml")]
    # A job is checked by the command that stands below it.
    for document in written:
        if "job" not in document:
            PipelineSpec.model_validate(document)


def test_every_runnable_command_of_the_readme_runs(tmp_path: Path) -> None:
    for text in _blocks("README.md", "yaml"):
        name = text.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(text)
    lines = [
        line for text in _blocks("README.md", "sh", runnable=True) for line in text.split("\n")
    ]
    commands = [shlex.split(line, comments=True) for line in lines if line.strip()]
    assert commands != []
    for command in commands:
        if command[0] == "make":
            assert set(command[1:]) <= make_targets()
        else:
            _run(command, tmp_path)
