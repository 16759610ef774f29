"""Two tiers of tests, and the order in which they run.

The tests that must hold at every commit run by default. Tests marked `long` belong to a section of
`make test-long`, because they take long or draw by chance; the marker names the section and says
why. `pytest --long kill` runs one section, and `--tiers` lists all tests instead of running them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.long.sections import SECTIONS

MARKER = "long"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name what to run, and in which order."""
    group = parser.getgroup("tiers")
    group.addoption(
        "--long", choices=SECTIONS, metavar="SECTION", help=f"run one of {', '.join(SECTIONS)}"
    )
    group.addoption("--tiers", action="store_true", help="list each test, its tier and why")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run tests in random order")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}(section, why): is run by make test-long alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier that is asked for."""
    placed = [(item, *tier_of(item)) for item in items]
    if config.getoption("tiers"):
        for item, section, why in placed:
            print(f"{section or 'test'}\t{item.nodeid}\t{why}")  # noqa: T201 - it is asked for
        items.clear()
        return
    wanted = config.getoption(MARKER)
    left_out = [item for item, section, _ in placed if section != wanted]
    items[:] = [item for item, section, _ in placed if section == wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    seed = config.getoption("shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def tier_of(item: pytest.Item) -> tuple[str | None, str]:
    """The section of a long test and why it is there; None for a test of every commit."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None, "it is certain and quick, or the only one of its kind"
    return _stated(item, *marker.args, **marker.kwargs)


def _stated(item: pytest.Item, section: str = "", *more: Any, why: str = "") -> tuple[str, str]:
    if section not in SECTIONS or more or not why:
        message = (
            f"{item.nodeid}: write pytest.mark.long(SECTION, why=...), with one of the sections"
            f" {', '.join(SECTIONS)}"
        )
        raise pytest.UsageError(message)
    return section, why
