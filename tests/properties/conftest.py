"""Makes what happens once in thousands of records happen all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _drop_often() -> Iterator[None]:
    """Have operators sweep old rows every few items, so that a sweep too many shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.operators.sweep.SWEEP_AFTER_ROWS", 3)
        yield


@pytest.fixture(scope="package", autouse=True)
def _split_often() -> Iterator[None]:
    """Have tables get a row for every key or two, and be large with a few of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size_bytes in (("ROW_BYTES", 40), ("ROW_BYTES_MIN", 20), ("SMALL_BYTES", 200)):
            patch.setattr(f"headrace.spark_jobs.versioned.table_rows.{name}", size_bytes)
        yield
