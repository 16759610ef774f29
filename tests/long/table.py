"""`tests/results/long.md`: how each section of `make test-long` ended when it was last run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.long.sections import SECTIONS

TABLE = Path(__file__).parents[1] / "results" / "long.md"
HEAD = ("section", "tries", "commit", "date", "Python", "machine", "seed", "minutes", "result")
_INTRODUCTION = """\
# The long tests

Written by `make test-long`, a row a section; a section that is not run keeps its row.
`make test-long ONLY="kill spark"` runs these two. A section that passed is not run again on the
same commit, unless it is named. `make tiers` lists every test with its section and why it is there.
"""
_NEVER = "not run yet"


class Row(NamedTuple):
    """How a section ended."""

    section: str
    commit: str
    date: str
    python: str
    machine: str
    seed: str
    minutes: str
    result: str

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return self.result.startswith("passed")


def read_rows(table: Path = TABLE) -> dict[str, Row]:
    """The rows of the table, by section."""
    lines = table.read_text("utf-8").splitlines() if table.exists() else []
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    rows = [Row(cells[0], *cells[2:]) for cells in found if len(cells) == len(HEAD)]
    return {row.section: row for row in rows if row.section in SECTIONS and row.commit}


def write_rows(rows: dict[str, Row], table: Path = TABLE) -> None:
    """Write the table, all sections in their order."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    for name, section in SECTIONS.items():
        ended = rows[name][1:] if name in rows else (*[""] * 6, _NEVER)
        lines.append(_line([name, section.tries, *ended]))
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("\n".join([_INTRODUCTION, *lines, ""]), "utf-8")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
