"""A merge into a table that others change meanwhile: merged again, and never for ever."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException, PySparkException

from headrace.contracts.errors import WorkerStalled
from headrace.spark_jobs.write.attempts import ATTEMPTS, attempted
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.digest import Digest

_ICEBERGS = "An error occurred.\nCaused by: org.apache.iceberg.exceptions"
_BETWEEN = [
    PySparkException(text)
    for text in (
        "[DELTA_CONCURRENT_APPEND] Files were added by a concurrent update.",
        "[DELTA_CONCURRENT_DELETE_READ] This transaction attempted to read one or more files",
        f"{_ICEBERGS}.ValidationException: Missing required files to delete: a.parquet",
        f"{_ICEBERGS}.CommitFailedException: Cannot commit changes based on stale table metadata",
    )
]

_ALSO_BETWEEN = [
    PySparkException("filtering is not possible: the table has been concurrently modified."),
    PySparkException(
        "[DELTA_METADATA_CHANGED] The metadata of the table has been changed by a con"
    ),
]


def _raising(*errors: PySparkException) -> tuple[list[PySparkException], Callable[[], None]]:
    """Return a merge that raises these one by one, and those that it has still to raise."""
    left = [*errors]

    def merge() -> None:
        if left:
            raise left.pop(0)

    return left, merge


def test_a_merge_behind_which_another_commit_came_is_merged_again() -> None:
    left, merge = _raising(*_ALSO_BETWEEN, *_BETWEEN[:2])
    attempted("kept", "tables/kept", 7, merge)
    assert not left
    left, merge = _raising(*_BETWEEN)
    attempted("kept", "tables/kept", 7, merge)
    assert not left


def test_a_merge_that_never_finds_the_table_at_rest_is_a_sentence() -> None:
    left, merge = _raising(*_BETWEEN, *_BETWEEN)
    sentence = "while micro-batch 7 of `kept` was written to tables/kept, another commit changed"
    with pytest.raises(WorkerStalled, match=sentence):
        attempted("kept", "tables/kept", 7, merge)
    assert len(left) == 2 * len(_BETWEEN) - ATTEMPTS


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("[DELTA_CONCURRENT_TRANSACTION] Did you run multiple instances?"),
        PySparkException(f"{_ICEBERGS}.CommitStateUnknownException: Cannot commit\n{_BETWEEN[3]}"),
        AnalysisException("[UNRESOLVED_COLUMN] A column is not there."),
    ],
)
def test_a_merge_that_fails_otherwise_is_not_merged_again(error: PySparkException) -> None:
    left, merge = _raising(error, error)
    with pytest.raises(type(error)):
        attempted("kept", "tables/kept", 7, merge)
    assert left == [error]


def test_a_delta_table_that_others_change_is_looked_at_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, append = _raising(_ALSO_BETWEEN[1])
    claimed: list[object] = []
    frame = MagicMock()
    frame.withColumn.return_value = frame
    frame.writeTo.return_value.options.return_value.append = append
    module = "headrace.spark_jobs.write.delta"
    monkeypatch.setattr(f"{module}.query_id_of", lambda _: "id")
    monkeypatch.setattr(f"{module}.F", MagicMock())
    monkeypatch.setattr(f"{module}.digest_of_table", lambda _: Digest())
    monkeypatch.setattr(DeltaSink, "_claim", lambda _, __, given, ___: claimed.append(given))
    monkeypatch.setattr(DeltaSink, "_last_write", lambda *_: None)
    sink = DeltaSink("kept", DeltaPlace("a.b", None))
    sink.write(frame, 7)
    sink.write(frame, 8)
    assert (claimed, left) == ([frame.schema, frame.schema], [])
