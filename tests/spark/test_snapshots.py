"""A marker in a snapshot decides about a micro-batch that is computed again."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import ReplayDiffers, SinkOfAnotherQuery
from headrace.spark_jobs.write.snapshots import TableMarker, is_written

MARKER = TableMarker("id", 3, 2, "00ff")


def test_a_micro_batch_is_there_if_its_marker_is() -> None:
    assert not is_written("query", "`a.b.c`", None, MARKER)
    assert not is_written("query", "`a.b.c`", MARKER._replace(batch=2), MARKER)
    assert is_written("query", "`a.b.c`", MARKER, MARKER)
    may_differ = MARKER._replace(rows=None, keys="")
    assert is_written("query", "`a.b.c`", may_differ, MARKER)
    assert is_written("query", "`a.b.c`", MARKER, may_differ)


def test_other_rows_and_an_older_checkpoint_are_refused() -> None:
    with pytest.raises(
        ReplayDiffers, match=r"`a\.b\.c` has 2 rows of it, and they are others; start"
    ):
        is_written("query", "`a.b.c`", MARKER, MARKER._replace(keys="00fe"))
    with pytest.raises(SinkOfAnotherQuery, match="written micro-batch 3, and its checkpoint is on"):
        is_written("query", "`a.b.c`", MARKER, MARKER._replace(batch=2))


def test_a_checkpoint_that_is_behind_may_be_that_of_another_driver() -> None:
    with pytest.raises(SinkOfAnotherQuery, match="at 2: another driver runs this query, or the"):
        is_written("query", "`a.b.c`", MARKER, MARKER._replace(batch=2))
