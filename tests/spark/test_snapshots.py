"""A marker in a snapshot decides about a micro-batch that is computed again."""

from __future__ import annotations

import json

import pytest

from headrace.contracts.errors import ReplayDiffers, SinkOfAnotherQuery, StateLayoutNewer
from headrace.spark_jobs.write.delta_marker import marker_in
from headrace.spark_jobs.write.snapshots import Past, TableMarker, is_written, past_of

MARKER = TableMarker("id", 3, 2, "00ff")
NEWER = (
    r"^the table of `priced` has a marker that a newer headrace wrote, with the fields `batch`, "
)


class Snapshot:
    """The only snapshot of a table, as Iceberg shows it, and the table itself."""

    def __init__(self, text: str) -> None:
        self._text = text

    def currentSnapshot(self) -> Snapshot:  # noqa: N802 (Java's)
        """Return the last snapshot."""
        return self

    def summary(self) -> dict[str, str]:
        """Return what the snapshot says."""
        return {"headrace.query.priced": self._text}

    def parentId(self) -> None:  # noqa: N802 (Java's)
        """Return that there was none before."""


def test_a_marker_of_an_earlier_version_is_read() -> None:
    bare = {"query_id": "id", "batch": 3}
    assert marker_in(json.dumps({"headrace.query.priced": bare}, separators=(",", ":")), "priced")
    marker = TableMarker("id", 3)
    assert past_of(Snapshot(json.dumps(bare)), "priced", "id") == Past(marker, is_whole=True)


def test_a_marker_of_a_newer_version_is_refused() -> None:
    newer = {**MARKER._asdict(), "sealed": True}
    noted = json.dumps({"headrace.query.priced": newer}, separators=(",", ":"))
    with pytest.raises(StateLayoutNewer, match=NEWER):
        marker_in(noted, "priced")
    with pytest.raises(StateLayoutNewer, match=NEWER):
        past_of(Snapshot(json.dumps(newer)), "priced", "id")


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
