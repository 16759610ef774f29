"""Every table of every page is true: record by record, at once, cut and crashed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import OPERATOR_KINDS
from headrace.testing.running import play
from headrace.testing.scenarios import Scenario, differences, load_scenarios, problems

PAGES = Path(__file__).parents[2] / "contracts" / "semantics"
NAMES = sorted([*OPERATOR_KINDS, "chain", "max_delay", "testing"])
SCENARIOS = {
    f"{name}.md:{scenario.line}": scenario
    for name in NAMES
    for scenario in load_scenarios(PAGES / f"{name}.md")
}
AT_ONCE = {
    place: scenario
    for place, scenario in SCENARIOS.items()
    if scenario.records_alone and isinstance(scenario.about, PipelineSpec)
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_record_by_record_cut_and_crashed(scenario: Scenario) -> None:
    wrong = problems(scenario)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("scenario", AT_ONCE.values(), ids=AT_ONCE)
def test_as_one_batch(scenario: Scenario) -> None:
    assert isinstance(scenario.about, PipelineSpec)
    result = play(
        scenario.about,
        scenario.rows,
        partitions=scenario.partitions,
        has_intake=scenario.has_intake,
        at_once=True,
    )
    wrong = list(differences(scenario.rows, result))
    assert not wrong, "\n".join(wrong)
