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
    """Have tables get a row for every key or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark_jobs.versioned.table_rows.ROW_BYTES", 40)
        yield
