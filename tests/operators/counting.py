"""A store that counts how it is asked, and operators that sweep with each batch."""

from __future__ import annotations

import pytest

from headrace.services.operators import sweep
from headrace.services.state.memory import MemoryStore


@pytest.fixture
def sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep wherever there is a row to sweep."""
    monkeypatch.setattr(sweep, "SWEEP_AFTER_ROWS", 1)


class CountingStore(MemoryStore):
    """Counts the calls that ask for rows, and the rows."""

    calls = 0
    rows_asked = 0

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""
        self.calls += 1
        self.rows_asked += len(keys)
        return super().get_many(keys)
