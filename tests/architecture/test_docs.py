"""The pages at the top tell the truth: their commands, examples and snippets run."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from contracts.pipeline import PipelineSpec
from tests.architecture.source import ROOT, make_targets
from tests.pages import blocks, run_there, write_files

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
NAMED_TARGET = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    named = NAMED_TARGET.findall((ROOT / page).read_text("utf-8"))
    assert [target for target in named if target not in make_targets()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_python_snippet_runs(page: str, tmp_path: Path) -> None:
    for text in blocks(page, "python"):
        snippet = tmp_path / "snippet.py"
        snippet.write_text(text)
        run_there([sys.executable, "-W", "error", str(snippet)], tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_every_pipeline_is_valid(page: str) -> None:
    written = [yaml.safe_load(text) for text in blocks(page, "yaml")]
    # A job is checked by the command that stands below it.
    for document in written:
        if "job" not in document:
            PipelineSpec.model_validate(document)


def test_every_runnable_command_of_the_readme_runs(tmp_path: Path) -> None:
    write_files("README.md", tmp_path)
    lines = [line for text in blocks("README.md", "sh", runnable=True) for line in text.split("\n")]
    commands = [shlex.split(line, comments=True) for line in lines if line.strip()]
    assert commands != []
    for command in commands:
        if command[0] == "make":
            assert set(command[1:]) <= make_targets()
        else:
            run_there(command, tmp_path)
