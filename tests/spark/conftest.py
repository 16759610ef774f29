"""Set-up that every test of this folder needs: Spark leaves its sockets to the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SOCKETS = "ignore:unclosed <socket:ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take Spark's sockets as they are, and nobody else's."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(_SOCKETS))


@pytest.fixture(autouse=True)
def sockets_are_collected() -> Iterator[None]:
    """Collect them here, or they would fail a test of somebody else.

    Later searches skip what is alive by then: they took 0.25 s each.
    """
    yield
    gc.collect()
    gc.freeze()
