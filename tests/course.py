"""The course of a run: what takes longest comes first, and each failure is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

_LONGEST = (
    "spark", "cli/test_demo", "kafka", "kill", "jepsen", "conformance", "runtime", "clusters",
    "bench",
)  # fmt: skip
"""Where brokers, Spark and containers are started; the longest first, the others fill the gaps."""
_TESTS = Path(__file__).parent


class Progress:
    """Writes each failure where the summary will be written, as soon as it is known."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a failure."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(getattr(crash, "message", report.longrepr)).splitlines() or [""]
            terminal.write_line(f"\n{report.nodeid}, {report.when}: {why[0][:300]}")


def pytest_configure(config: pytest.Config) -> None:
    """Where several processes run the tests, one of them hears and says everything."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, or one process would still do it when all others are done."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    inside = item.path.relative_to(_TESTS).as_posix()
    places = (place for place, name in enumerate(_LONGEST) if inside.startswith(name))
    return next(places, len(_LONGEST))
