"""The course of a run: what takes long comes first, each failure is told at once, and it ends.

A run that is ended from outside has then told what failed. HEADRACE_TESTS_UNTIL is a time in
seconds since 1970; of the tests that take long, those that would begin later are left out and
counted in the summary, so that a run on a slow machine ends with a result.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

_LONG = (
    "spark", "cli/test_demo", "kafka", "kill", "jepsen", "conformance", "runtime", "clusters",
    "bench",
)  # fmt: skip
"""Where brokers, Spark and containers are started; the longest first, the others fill the gaps."""
_TESTS = Path(__file__).parent
_LEFT_OUT = "no time was left"


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

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many tests were left out, since a run without them looks just as green."""
        left_out = sum(
            isinstance(report, pytest.TestReport) and _LEFT_OUT in str(report.longrepr)
            for report in terminalreporter.stats.get("skipped", [])
        )
        if left_out:
            terminalreporter.write_line(
                f"{left_out} tests were left out: this machine was too slow to run all in time."
            )


def pytest_configure(config: pytest.Config) -> None:
    """Where several processes run the tests, one of them hears and says everything."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, or one process would still do it when all others are done."""
    items.sort(key=_place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin nothing long behind the end."""
    until = os.environ.get("HEADRACE_TESTS_UNTIL")
    now_s = time.time()  # noqa: TID251 - it bounds the run, no result
    if until and now_s > float(until) and _place(item) < len(_LONG):
        pytest.skip(_LEFT_OUT)


def _place(item: pytest.Item) -> int:
    inside = item.path.relative_to(_TESTS).as_posix()
    places = (place for place, name in enumerate(_LONG) if inside.startswith(name))
    return next(places, len(_LONG))
