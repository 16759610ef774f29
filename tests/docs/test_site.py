"""The site is whole, without building it: pages, links, and a reference that leaves nothing out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.contracts import errors
from headrace.contracts.policies import OPERATOR_KINDS
from headrace.services.settings import Settings
from headrace.services.variables import variable
from headrace.spark_jobs.jobs.run import JOBS
from tests.architecture.source import ROOT
from tests.docs.site import PAGES, SEMANTICS, gather

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BAR = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    gather(folder)
    return folder


def test_every_link_of_every_page_leads_somewhere(site: Path) -> None:
    broken = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("*.md")
        for link in _LINK.findall(_CODE.sub("", page.read_text("utf-8")))
        if "://" not in link and not _leads_somewhere(page, link)
    ]
    assert broken == []


def test_every_link_between_written_pages_works_without_the_site() -> None:
    pages = [*PAGES.rglob("*.md"), *SEMANTICS.glob("*.md"), *ROOT.glob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in _LINK.findall(_CODE.sub("", page.read_text("utf-8")))
        if "://" not in link and not link.startswith("reference/")
        # Only the site gives a heading of a page its anchor.
        if not _leads_somewhere(page, link.partition("#")[0])
    ]
    assert broken == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.is_file():
        return False
    return not anchor or f"#{anchor} }}" in target.read_text("utf-8")


def test_the_navigation_has_every_page_once(site: Path) -> None:
    config = yaml.safe_load((PAGES / "mkdocs.yml").read_text("utf-8"))
    named = list(_named(config["nav"]))
    pages = {str(page.relative_to(site)) for page in site.rglob("*.md")}
    # Decisions are found by their list.
    assert sorted(named) == sorted(page for page in pages if not page.startswith("decisions/0"))


def _named(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for place in entry.values():
            if isinstance(place, str):
                yield place
            else:
                yield from _named(place)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("settings", [f"| `{variable(field)}` |" for field in Settings.model_fields]),
        ("pipeline", [f"\n### {kind} {{" for kind in OPERATOR_KINDS]),
        ("job", [f"\n### {name}\n" for name in JOBS]),
        ("job", ["\n## A query's file", "| `streams` |", "| `tables` |", "| `cold-history` |"]),
        ("errors", [f"| `{name}` |" for name in vars(errors) if name[0].isupper()][1:]),
        ("metrics", ["| `headrace_unbalanced_records` |"]),
    ],
)
def test_the_reference_leaves_nothing_out(site: Path, page: str, names: list[str]) -> None:
    text = (site / "reference" / f"{page}.md").read_text("utf-8")
    assert [name for name in names if name not in text] == []


def test_no_row_of_a_generated_table_is_shifted(site: Path) -> None:
    for page in (site / "reference").glob("*.md"):
        text = _CODE.sub("", page.read_text("utf-8"))
        tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        for table in tables:
            bars = [len(_BAR.findall(row)) for row in table.splitlines()]
            assert len(set(bars)) == 1, f"{page.name}: {table}"
