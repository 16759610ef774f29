"""How much of each topic a micro-batch takes: bounded, and all topics in step."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.jobs.config import BYTES_A_BATCH, RECORDS_A_BATCH, batch_of
from headrace.spark_jobs.read.bounds import Size, bounds_of
from tests.spark.test_jobs_file import GOOD, written


@pytest.mark.parametrize(
    ("sizes", "records", "size_bytes", "bounds"),
    [
        ({"a": Size(5_000, 10)}, None, None, {}),
        ({"a": Size(5_000, 10)}, 100, None, {"a": 100}),
        ({"a": Size(5_000, 10)}, 100, 500, {"a": 50}),
        ({"a": Size(5_000, 10)}, None, 7, {"a": 1}),
        ({"a": Size(0, None)}, 100, 500, {"a": 100}),
        ({"a": Size(0, None)}, None, 500, {}),
        # Both take fifty micro-batches.
        ({"a": Size(5_000, 10), "b": Size(2_500, 10)}, 100, None, {"a": 100, "b": 50}),
        # The one with large records takes a hundred, and so does the other.
        ({"a": Size(5_000, 10), "b": Size(5_000, 20)}, 100, 1_000, {"a": 50, "b": 50}),
        # A topic with few records may grow.
        ({"a": Size(5_000_000, 10), "b": Size(3, 10)}, 1_000, None, {"a": 1_000, "b": 100}),
        # All of it fits into one.
        ({"a": Size(90, 10), "b": Size(3, 10)}, 100, None, {"a": 100, "b": 100}),
    ],
)
def test_topics_are_taken_in_equally_many_micro_batches(
    sizes: dict[str, Size], records: int | None, size_bytes: int | None, bounds: dict[str, int]
) -> None:
    assert bounds_of(sizes, records, size_bytes) == bounds


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        (GOOD, (RECORDS_A_BATCH, BYTES_A_BATCH)),
        (GOOD + "records-per-batch: 7", (7, None)),
        (GOOD + "bytes-per-batch: 1MiB", (None, 1 << 20)),
        # No record would wait for those that are not read yet.
        (GOOD + "release: stream-time", (None, None)),
        (GOOD.replace(", pipeline: prices", ""), (None, None)),
    ],
)
def test_a_job_whose_records_wait_for_progress_is_bounded(
    tmp_path: Path, text: str, batch: tuple[int | None, int | None]
) -> None:
    assert batch_of(load_job(written(tmp_path, text))[1]) == batch
