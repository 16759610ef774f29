"""Decisions are pages of one form: they are numbered, listed, linked, and name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, make_targets
from tests.pages import blocks

FOLDER = ROOT / "docs" / "decisions"
INDEX = FOLDER / "README.md"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
PAGES = [ROOT / "ARCHITECTURE.md", *sorted(FOLDER.glob("*.md"))]
LINES_OF_ARCHITECTURE_MAX = 150
TERMS_MAX = 20
HEADINGS = ("Context", "Choice", "Measured", "Consequences")
FOLDERS = ("contracts", "docker", "docs", "services", "spark_jobs", "src", "tests")
LISTED = re.compile(r"^- \[(\d{4})\]\((.+?)\)\s+\*\*(.+?)\*\*:\s", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
NAMED_TARGET = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
NAMED_MODULE = re.compile(r"python -m ([\w.]+)")
NAMED_COMMAND = re.compile(r"`headrace ([a-z-]+)")
NAMED_PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})(?:/[\w.*-]+)*/?)`")
"""A path from the root. `services:ids` and names of topics are none."""


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _commands() -> set[str]:
    modules = (file.stem.replace("_", "-") for file in (ROOT / "services" / "cli").glob("*.py"))
    folders = (folder.name for folder in (ROOT / "services" / "cli").iterdir() if folder.is_dir())
    return {*modules, *folders, "spark"}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_resolves(page: Path) -> None:
    links = (link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8")))
    inside = [link for link in links if link and "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = NAMED_PATH.findall(page.read_text("utf-8"))
    assert [path for path in named if not list(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_a_page_names_is_known(page: Path) -> None:
    text = page.read_text("utf-8")
    modules = [ROOT.joinpath(*name.rstrip(".").split(".")) for name in NAMED_MODULE.findall(text)]
    unknown = [_name(each) for each in modules if not _runs(each)]
    unknown += [name for name in NAMED_TARGET.findall(text) if name not in make_targets()]
    if page.stem != "what-is-missing":
        unknown += [name for name in NAMED_COMMAND.findall(text) if name not in _commands()]
    assert unknown == []


def _runs(module: Path) -> bool:
    return module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()


@pytest.mark.parametrize("page", DECISIONS, ids=_name)
def test_every_decision_has_the_form(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.match(rf"# {page.name[:4]}\. [A-Z`a-z].+\n\n## Context\n", text)
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    wanted = [heading for heading in HEADINGS if heading in found or heading != "Measured"]
    assert found == wanted


@pytest.mark.parametrize("page", DECISIONS, ids=_name)
def test_a_decision_is_prose_and_figures(page: Path) -> None:
    # Snippets and commands to be run stand on the pages for users, where tests run them.
    assert [blocks(_name(page), kind) for kind in ("python", "yaml", "sh")] == [[], [], []]


def test_numbers_are_given_once() -> None:
    numbers = [page.name[:4] for page in DECISIONS]
    assert len(numbers) == len(set(numbers)) > 0


def test_the_list_has_each_decision_once_with_its_title() -> None:
    listed = LISTED.findall(INDEX.read_text("utf-8"))
    titles = {
        page.name: page.read_text("utf-8").split("\n", 1)[0].partition(". ")[2]
        for page in DECISIONS
    }
    assert [number for number, name, _ in listed if not name.startswith(f"{number}-")] == []
    assert {name: " ".join(title.split()) for _, name, title in listed} == titles
    assert len(listed) == len(titles)


def test_architecture_is_three_screens_and_decides_nothing() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert len(text.splitlines()) <= LINES_OF_ARCHITECTURE_MAX
    # A decision was a paragraph that began in bold.
    assert re.findall(r"^\*\*.+", text, re.MULTILINE) == []


def test_the_glossary_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    _, _, behind = text.partition("## Glossary")
    rows = [line for line in behind.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert 0 < len(rows) - 1 <= TERMS_MAX
