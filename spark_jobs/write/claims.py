"""Sentences that refuse a table of another query, of another mode, time or version.

A table notes the checkpoint that writes to it. The number of a micro-batch means something only
with its checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from headrace.contracts.errors import JobInvalid, SinkOfAnotherQuery, StateLayoutNewer

MODE = "headrace.mode"
APPEND, UPSERT, SCD2 = "append", "upsert", "scd2"
_PROPERTY = "headrace.query."


def property_of(query: str) -> str:
    """Return the name of the property that has the checkpoint of a query."""
    return f"{_PROPERTY}{query}"


def claims_of(query: str, query_id: str, mode: str) -> dict[str, str]:
    """Return the properties by which a table belongs to a query's checkpoint."""
    return {MODE: mode, property_of(query): query_id}


def is_claimed(
    place: str, properties: Mapping[str, str], query: str, query_id: str, mode: str
) -> bool:
    """Return whether a table is this checkpoint's already; refuse one that cannot become its."""
    known = properties.get(property_of(query))
    mode_there = properties.get(MODE, APPEND if known else mode)
    if mode_there != mode:
        message = (
            f"{place} was written with `mode: {mode_there}`, and its rows are not those that"
            f" `{mode}` would have left; write `{mode_there}`, or give the job another table and"
            " checkpoint"
        )
        raise SinkOfAnotherQuery(message)
    if known not in {None, query_id}:
        message = (
            f"`{query}` has written to {place} with another checkpoint, and its rows are there"
            " already; give the job another name or table, or delete the table to have everything"
            " written once more"
        )
        raise SinkOfAnotherQuery(message)
    return known is not None


def refuse_older_copy(query: str, written: int, batch: int) -> NoReturn:
    """Refuse a checkpoint that is behind what its query has written."""
    message = (
        f"`{query}` has written micro-batch {written}, and its checkpoint is only at {batch}:"
        " another driver runs this query, or the checkpoint is an older copy; stop that driver, or"
        " bring back the newest checkpoint"
    )
    raise SinkOfAnotherQuery(message)


def refuse_newer(
    place: str, fields: Collection[str], known: Collection[str], later: Collection[str]
) -> None:
    """Refuse a marker with other fields than the known ones; earlier versions lack `later` ones.

    A field that is unknown here may decide whether a micro-batch is written.
    """
    if not {*known} - {*later} <= {*fields} <= {*known}:
        names = ", ".join(f"`{name}`" for name in sorted(fields))
        message = (
            f"{place} has a marker that a newer headrace wrote, with the fields {names}; start the"
            " job with that version, or a later one"
        )
        raise StateLayoutNewer(message)


def refuse_other_columns(title: str, there: list[str], rows: list[str]) -> None:
    """Refuse a table that lacks a column of the rows, or has one that they lack."""
    refuse_missing_columns(title, there, rows)
    if foreign := _not_among(there, rows):
        message = (
            f"{title} has a column `{foreign[0]}`, which no row has; drop it by `ALTER TABLE`, or"
            " give the job another table"
        )
        raise JobInvalid(message)


def refuse_missing_columns(title: str, there: list[str], rows: list[str]) -> None:
    """Refuse a table that lacks a column of the rows."""
    if lacking := _not_among(rows, there):
        message = (
            f"{title} lacks the column `{lacking[0]}`, which each row has; add it by `ALTER TABLE`,"
            " or give the job another table"
        )
        raise JobInvalid(message)


def _not_among(names: list[str], others: list[str]) -> list[str]:
    known = {other.lower() for other in others}
    return [name for name in names if name.lower() not in known]
