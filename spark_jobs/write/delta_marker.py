"""Markers of micro-batches in the commits of a Delta table.

Delta's log has the number of each writer's last micro-batch, and compares it in a commit. The rows
of a micro-batch may be others when it is computed again. So the commit says more, as its
`userMetadata`:

    {"headrace.query.NAME": {"query_id": of the checkpoint, "batch": number of the micro-batch,
                             "rows": how many it had, "keys": a digest of their keys and times}}

A text that the user has commits say stands before it. Others commit to the table as well, so the
marker is looked for from the last commit back. Delta forgets commits before it forgets numbers, and
earlier versions left no marker; then the number alone decides.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.spark_jobs.write.claims import property_of
from headrace.spark_jobs.write.snapshots import TableMarker, read_table_marker

if TYPE_CHECKING:
    from delta.tables import DeltaTable

_FIRST_LOOK = 8
"""How many commits from the last one back."""


def marker_text(said: str, query: str, marker: TableMarker) -> str:
    """Return what a commit says: the user's own text, and the marker."""
    noted = json.dumps({property_of(query): marker._asdict()}, separators=(",", ":"))
    return f"{said} {noted}" if said else noted


def marker_in(text: str | None, query: str) -> TableMarker | None:
    """Return the marker of a query in what a commit says, None if there is none."""
    begins = f'{{"{property_of(query)}":'
    _, found, rest = (text or "").rpartition(begins)
    if not found:
        return None
    noted, _ = json.JSONDecoder().raw_decode(rest)
    return read_table_marker(query, noted)


def marker_of_batch(table: DeltaTable, query: str, query_id: str, batch: int) -> TableMarker:
    """Return the marker of a micro-batch that is in a table; it says no more if it is not found."""
    look = _FIRST_LOOK
    while True:
        commits = table.history(look).select("userMetadata").collect()
        for commit in commits:
            found = marker_in(commit["userMetadata"], query)
            if found is not None and (found.query_id, found.batch) == (query_id, batch):
                return found
        if len(commits) < look:
            return TableMarker(query_id, batch)
        look *= _FIRST_LOOK
