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


@pytest.fixture(scope="package", autouse=True)
def _run_often() -> Iterator[None]:
    """Have tables write runs of a few versions, though some look-ups ask for these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark_jobs.versioned.runs.RUN_VERSIONS_MIN", 1)
        patch.setattr("headrace.spark_jobs.versioned.at_once.ONE_OF", 2)
        yield


@pytest.fixture(scope="module")
def no_runs() -> Iterator[None]:
    """Have tables write no run, as those that take records one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark_jobs.versioned.runs.RUN_VERSIONS_MIN", 1 << 60)
        yield
