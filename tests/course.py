"""The course of a run: what takes longest comes first, and each failure is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

_LONGEST = ("spark", "cli/test_demo", "kafka", "kill", "jepsen", "conformance")
"""Where Spark, brokers and containers are started; the longest first."""
_WAITING = ("runtime", "clusters", "bench")
"""Where tests wait for a broker most of the time, so that others can compute meanwhile."""
_SHARE_OF_WAITING = 0.65
"""The last of them begin when so much is over, or processes would be idle at the end."""
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
    """Begin with what takes longest, then let files that wait and files that compute take turns.

    One process would still do the longest when all others are done. While all processes wait, the
    machine is idle: it was for a fifth of the minute in which files of one kind came together.
    """
    places = _places(list(dict.fromkeys(item.path for item in items)))
    items.sort(key=lambda item: places[item.path])


def _places(files: list[Path]) -> dict[Path, tuple[float, ...]]:
    waiting = [file for file in files if _starts(file, _WAITING) is not None]
    longest = {file: _starts(file, _LONGEST) for file in files}
    computing = [file for file in files if longest[file] is None and file not in waiting]
    places: dict[Path, tuple[float, ...]] = {
        file: (place,) for file, place in longest.items() if place is not None
    }
    for kind, share in ((waiting, _SHARE_OF_WAITING), (computing, 1.0)):
        for number, file in enumerate(kind):
            places[file] = (len(_LONGEST), share * number / len(kind))
    return places


def _starts(file: Path, names: tuple[str, ...]) -> int | None:
    inside = file.relative_to(_TESTS).as_posix()
    return next((place for place, name in enumerate(names) if inside.startswith(name)), None)
