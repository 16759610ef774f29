"""The table of the long tests keeps rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long.sections import SECTIONS, SEEDED
from tests.long.table import Row, read_rows, write_rows


def _row(section: str, result: str) -> Row:
    return Row(section, "abc", "2026-11-25", "3.11.2", "2 cores", "7", "1.5", result)


def test_a_section_that_was_not_run_keeps_its_row(tmp_path: Path) -> None:
    table = tmp_path / "long.md"
    kill, spark = _row("kill", "passed: 3 passed"), _row("spark", "**failed**: 1 failed")
    write_rows({"kill": kill}, table)
    write_rows(read_rows(table) | {"spark": spark}, table)
    assert read_rows(table) == {"kill": kill, "spark": spark}
    assert [kill.passed, spark.passed] == [True, False]


def test_every_section_has_a_line_and_a_section_that_is_gone_has_none(tmp_path: Path) -> None:
    table = tmp_path / "long.md"
    write_rows({"gone": _row("gone", "passed")}, table)
    lines = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(SECTIONS)


@pytest.mark.parametrize("section", SEEDED)
def test_a_seed_goes_to_a_command(section: str) -> None:
    assert SECTIONS[section].command
