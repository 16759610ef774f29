"""The pages tell the truth: their commands, examples, snippets and links are right."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from headrace.contracts.pipeline import PipelineSpec
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.jobs.access import KafkaAccess
from tests.architecture.source import ROOT, make_targets, path_of, python_files
from tests.pages import blocks, named_files, run_there, write_files

JOBS = "spark_jobs/OWN_JOBS.md"
STARTING_SPARK = ("docs/learn.md", "docs/spark.md")
SITE = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", JOBS, *SITE)
NAMED_TARGET = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


def _commands(page: str) -> list[list[str]]:
    lines = [line for text in blocks(page, "sh", "runnable") for line in text.split("\n")]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    named = NAMED_TARGET.findall((ROOT / page).read_text("utf-8"))
    assert [target for target in named if target not in make_targets()] == []


def test_make_explains_every_target_that_a_message_names() -> None:
    named = {
        (path_of(file), target)
        for file in python_files("contracts", "services", "spark_jobs", "src", "tests")
        for target in re.findall(r"`make ([a-z][a-z-]*)`", file.read_text("utf-8"))
    }
    assert {one for one in named if one[1] not in make_targets()} == set()
    assert len(named) > 10


@pytest.mark.parametrize("page", PAGES)
def test_every_python_snippet_runs(page: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    # A job is run by `headrace spark`, in a command that stands below it.
    for text in (one for one in blocks(page, "python", "") if "hr.run(" not in one):
        snippet = tmp_path / "snippet.py"
        snippet.write_text(text)
        run_there([sys.executable, "-W", "error", str(snippet)], tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_every_pipeline_is_valid(page: str, tmp_path: Path) -> None:
    # A job is checked by the command that stands below it.
    for text in blocks(page, "yaml"):
        document = yaml.safe_load(text)
        if document.keys() == {"kafka"}:
            KafkaAccess.model_validate(document["kafka"], by_name=False)
        elif "query" in document:
            (tmp_path / "query.yaml").write_text(text)
            load_job(tmp_path / "query.yaml")
        elif "job" not in document:
            PipelineSpec.model_validate(document)


STARTS_SPARK = pytest.mark.long("users", why="its job starts Spark, and so does README's")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=STARTS_SPARK if page in STARTING_SPARK else ())
        for page in PAGES
        if _commands(page)
    ],
)
def test_every_runnable_command_runs(page: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    for command in _commands(page):
        if command[0] == "make":
            assert set(command[1:]) <= make_targets()
        elif not _runs_on_an_earlier_page(command, page):
            run_there(command, tmp_path)


def _runs_on_an_earlier_page(command: list[str], page: str) -> bool:
    """Return whether an earlier page has the command, with the same files below its name."""
    files = named_files(page)
    used = {word: files[word] for word in command if word in files}
    earlier = PAGES[: PAGES.index(page)]
    return bool(used) and any(
        command in _commands(other) and used.items() <= named_files(other).items()
        for other in earlier
    )


def test_the_first_pages_have_commands_that_run() -> None:
    assert all(map(_commands, ("README.md", "docs/index.md", "docs/learn.md")))
