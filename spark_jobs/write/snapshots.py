"""Markers of micro-batches in the snapshots of an Iceberg table.

A marker is in the summary of the snapshot that brought the rows, so both are there or neither is:

    headrace.query.NAME    {"query_id": of the checkpoint, "batch": number of the micro-batch,
                            "rows": how many it had, "keys": a digest of their keys and times}

Others commit to the table as well: compactions, and other queries. So the last marker is looked for
from the current snapshot back, through its parents. An expiry of snapshots may remove it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.contracts.errors import ReplayDiffers
from headrace.spark_jobs.write.claims import property_of, refuse_newer, refuse_older_copy


class TableMarker(NamedTuple):
    """The last micro-batch that a table has of a query."""

    query_id: str
    batch: int
    rows: int | None = None
    """How many rows it had; None if a repeated batch may have another number."""
    keys: str = ""
    """A digest of their keys and times, in any order."""

    @property
    def text(self) -> str:
        """The value in a snapshot's summary."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read_table_marker(query: str, said: Mapping[str, Any]) -> TableMarker:
    """Return the marker of a query with these fields; refuse one that a newer version wrote."""
    known, later = TableMarker._fields, TableMarker._field_defaults
    refuse_newer(f"the table of `{query}`", said, known, later)
    return TableMarker(**said)


class Past(NamedTuple):
    """The answer of a table's snapshots about a query."""

    marker: TableMarker | None
    is_whole: bool
    """Whether no snapshot is missing in which there could be a newer marker."""


def past_of(table: Any, query: str, query_id: str) -> Past:
    """Look for the last marker of a query in a table of Iceberg's, which was just read."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        text = snapshot.summary().get(property_of(query))
        marker = None if text is None else read_table_marker(query, json.loads(text))
        if marker is not None and marker.query_id == query_id:
            return Past(marker, is_whole=True)
        parent = snapshot.parentId()
        if parent is None:
            break
        snapshot = table.snapshot(parent)
        if snapshot is None:
            return Past(None, is_whole=False)
    return Past(None, is_whole=True)


def is_written(query: str, title: str, found: TableMarker | None, wanted: TableMarker) -> bool:
    """Return whether a table has this micro-batch; refuse one that it has otherwise."""
    if found is None or found.batch < wanted.batch:
        return False
    if found.batch > wanted.batch:
        refuse_older_copy(query, found.batch, wanted.batch)
    if None not in (found.rows, wanted.rows) and found != wanted:
        differ = "others" if found.rows == wanted.rows else f"{wanted.rows} now"
        message = (
            f"micro-batch {found.batch} of `{query}` was written and comes out otherwise now:"
            f" {title} has {found.rows} rows of it, and they are {differ}; start it once with the"
            " code and the topics that it had, or have everything written once more with a new"
            " name, checkpoint and table"
        )
        raise ReplayDiffers(message)
    return True
