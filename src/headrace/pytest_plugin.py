"""For pytest: files `*.scenario.md` are tests, and the fixture `headrace` runs pipelines.

Every run of pytest in an environment with headrace loads this module, so it imports nothing of ours
before pytest collects a scenario or a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.here import Here

_SUFFIX = ".scenario.md"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the scenarios of a file."""
    if file_path.name.endswith(_SUFFIX):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


@pytest.fixture
def headrace(request: pytest.FixtureRequest) -> Here:
    """Run pipelines from files beside the test: `headrace.run(...)`, `headrace.check(...)`."""
    here: Here = _testing("here").Here(request.path.parent)
    return here


class ScenarioFile(pytest.File):
    """A page of scenarios."""

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield one test a table."""
        try:
            scenarios = _testing("scenarios").load_scenarios(self.path)
        except import_module("headrace.contracts.errors").HeadraceError as error:
            raise self.CollectError(str(error)) from error
        for scenario in scenarios:
            yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """One table."""

    def __init__(self, *, scenario: Any, **of_node: Any) -> None:
        """Take the table of the scenario."""
        super().__init__(**of_node)
        self._scenario = scenario

    def runtest(self) -> None:
        """Check the table."""
        try:
            wrong = _testing("scenarios").problems(self._scenario)
        except import_module("headrace.contracts.errors").HeadraceError as error:
            raise NotTrueError(str(error)) from error
        if wrong:
            raise NotTrueError("\n".join(wrong))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """Return the problems of the table, without frames of ours."""
        if isinstance(excinfo.value, NotTrueError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the table."""
        return self.path, self._scenario.line - 1, self.name


class NotTrueError(AssertionError):
    """A table says what is not so. **Do:** compare what it says with what left."""


def _testing(module: str) -> Any:
    return import_module(f"headrace.testing.{module}")
