"""The tables of the semantics pages say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versioned.scenario import disagreements, scenarios

FOLDER = Path(__file__).parents[2] / "contracts" / "semantics"
PAGES = ("versioned_table.md", "stream_table_join.md", "table_table_join.md")
SCENARIOS = [scenario for page in PAGES for scenario in scenarios(FOLDER / page)]


def test_every_page_has_tables() -> None:
    assert {place.partition(":")[0] for place, _ in SCENARIOS} == set(PAGES)


@pytest.mark.parametrize(
    "scenario", [text for _, text in SCENARIOS], ids=[at for at, _ in SCENARIOS]
)
def test_the_table_holds(scenario: str) -> None:
    assert disagreements(scenario) == []


def test_a_table_that_lies_is_found() -> None:
    lie = "stream-table: {join: left, table: plain}\nstream k 1ms s -> k@1ms=s+t\n"
    assert disagreements(lie) != []
