"""All pages of the site in one folder: written ones, included ones, and the generated reference.

No page is copied in the repository: ARCHITECTURE.md, CHANGELOG.md, CONTRIBUTING.md and the pages of
`contracts/semantics/` stay where they are, and are gathered when the site is built.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.architecture.source import ROOT
from tests.docs.reference import reference

PAGES = ROOT / "docs"
SEMANTICS = ROOT / "contracts" / "semantics"
INCLUDED = {
    "architecture.md": ROOT / "ARCHITECTURE.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "reference/pipeline.schema.json": ROOT / "contracts" / "schemas" / "pipeline.schema.json",
    "reference/query.schema.json": ROOT / "contracts" / "schemas" / "query.schema.json",
    **{
        f"results/{name}.svg": ROOT / "tests" / "bench" / "results" / f"{name}.svg"
        for name in ("race", "spark", "whole")
    },
}
_MOVED = (
    ("docs/", ""),
    ("../contracts/semantics/", "semantics/"),
    ("../ARCHITECTURE.md", "architecture.md"),
    ("../tests/bench/results/", "results/"),
)
"""Where links of the pages lead in the repository, and here."""


def gather(folder: Path) -> None:
    """Write the pages of the site into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PAGES, folder, ignore=shutil.ignore_patterns("mkdocs.yml"))
    shutil.copytree(SEMANTICS, folder / "semantics")
    for place, file in INCLUDED.items():
        (folder / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, folder / place)
    for page in folder.glob("*.md"):
        text = page.read_text("utf-8")
        for there, here in _MOVED:
            text = text.replace(f"]({there}", f"]({here}")
        page.write_text(text, "utf-8")
    for name, text in reference().items():
        (folder / "reference" / name).write_text(text, "utf-8")
