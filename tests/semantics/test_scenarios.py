"""Every table of every page is true: record by record, and, where nothing restarts, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.policies import OPERATOR_KINDS
from services.state.memory import MemoryStore
from tests.properties.drive import Drive, Outcome, chain_of
from tests.semantics.scenario import FAILED, Leaving, Scenario, leaving, read_scenarios

PAGES = Path(__file__).parents[2] / "contracts" / "semantics"
NAMES = sorted([*OPERATOR_KINDS, "chain"])
SCENARIOS = {
    f"{name}.md:{line}": scenario
    for name in NAMES
    for line, scenario in read_scenarios((PAGES / f"{name}.md").read_text("utf-8"))
}
AT_ONCE = {place: scenario for place, scenario in SCENARIOS.items() if not scenario.restarts}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_record_by_record(scenario: Scenario) -> None:
    drive = _drive(scenario)
    cause = 0
    for row in scenario.rows:
        if row.record is None:
            drive.restart()
            continue
        drive.process(1)
        assert _leaves(scenario, drive.outcome, cause) == row.leaves, f"line {row.line}"
        cause += 1


@pytest.mark.parametrize("scenario", AT_ONCE.values(), ids=AT_ONCE)
def test_as_one_batch(scenario: Scenario) -> None:
    drive = _drive(scenario)
    drive.process(len(scenario.rows))
    for cause, row in enumerate(scenario.rows):
        assert _leaves(scenario, drive.outcome, cause) == row.leaves, f"line {row.line}"


def _drive(scenario: Scenario) -> Drive:
    records = [row.record for row in scenario.rows if row.record is not None]
    return Drive(chain_of(scenario.operators), records, MemoryStore())


def _leaves(scenario: Scenario, outcome: Outcome, cause: int) -> list[Leaving]:
    """All that left because of one record."""
    records = [row.record for row in scenario.rows if row.record is not None]
    leaves = [
        leaving("", output.key, output.value, (output.timestamp_ms, output.headers))
        for output in outcome.outputs
        if output.cause == cause
    ]
    for side, causes in (("late:", outcome.late), ("dead:", outcome.dead)):
        if cause in causes:
            key, value, timestamp_ms, headers, *_ = records[cause]
            leaves.append(leaving(side, key, value, (timestamp_ms, headers)))
    if outcome.failure == cause:
        leaves.append(Leaving(FAILED))
    return leaves
