"""`headrace test`: scenario files are run, for people without pytest."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.contracts.errors import HeadraceError, ScenarioInvalid
from headrace.contracts.problem_text import together
from headrace.testing.scenarios import SUFFIX, Scenario, load_scenarios, problems


def run_scenarios(folder: Path = Path()) -> None:
    """Run the scenario files (*.scenario.md) of a folder, without a broker.

    Exit code 1 if an expectation fails, 2 if a file cannot be read.

    Args:
        folder: The folder, with all folders in it; or one file.
    """
    files = sorted(folder.rglob(f"*{SUFFIX}")) if _is_folder(folder) else [folder]
    if not files:
        message = f"{folder}: there is no scenario here; write one into `clicks{SUFFIX}`"
        raise ScenarioInvalid(message)
    wrong: list[str] = []
    outcomes: list[bool] = []
    for file in files:
        try:
            # One by one: what was run before a wrong one counts.
            outcomes.extend(map(_is_true, load_scenarios(file)))
        except HeadraceError as error:
            wrong += str(error).splitlines()
    false = outcomes.count(False)
    print(f"{len(outcomes) - false} are true, {false} are not")
    if wrong:
        raise ScenarioInvalid(together(wrong))
    if false:
        sys.exit(1)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        # The reader of files says why it cannot be read.
        return False


def _is_true(scenario: Scenario) -> bool:
    lines = problems(scenario)
    print(f"{'false' if lines else 'true '}  {scenario.file}: {scenario.name}")
    for line in lines:
        print(f"    {line}")
    return not lines
