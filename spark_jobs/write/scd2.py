"""The SQL by which a table keeps each key's history: a row a version, from when until when (SCD 2).

    key, valid_from, valid_to, deleted, task, sequence, batch, and the row's own columns

A key's rows depend on the set of its versions alone, and not on the order in which they came. A
version begins at its time and ends where the next one of its key begins. A version without a value
deletes: it ends the one before it, and has no row. Without one before it, it leaves a row that is
never valid, since its end is its beginning: an earlier version that is late ends there. Of two
versions of one time the later one counts.

Micro-batches bring versions. `changes_of` selects the rows of the table that they change, of which
it reads those that end behind the first version of their key. It is plain SQL, which tests run
without Spark. `merge_of` puts them into the table, in one commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.spark_jobs.write.quoted import quoted

VALID_FROM, VALID_TO, DELETED, BATCH = "valid_from", "valid_to", "deleted", "batch"
OF_VERSIONS = {VALID_FROM, VALID_TO}
"""Columns that only such a table has."""
_OWN = ("key", VALID_FROM, VALID_TO, DELETED, BATCH)
_CHANGES = """
WITH _hr_firsts AS (
    SELECT key, min(valid_from) AS _hr_first FROM {new} WHERE key IS NOT NULL GROUP BY key
), _hr_kinds AS (
    SELECT 1 AS _hr_kind UNION ALL SELECT 2 AS _hr_kind
), _hr_given AS (
    -- Versions that came, rows that are there, and their ends: each deletes, unless a version is
    -- there.
    SELECT 0 AS _hr_kind, key, valid_from, NULL AS _hr_end, deleted{values}
    FROM {new} WHERE key IS NOT NULL
    UNION ALL
    SELECT _hr_kind, kept.key, CASE _hr_kind WHEN 1 THEN valid_from ELSE valid_to END, valid_to,
        deleted OR _hr_kind = 2{values_there}
    FROM {kept} AS kept
    JOIN _hr_firsts ON kept.key = _hr_firsts.key
    JOIN _hr_kinds ON _hr_kind = 1 OR (valid_to IS NOT NULL AND NOT deleted)
    WHERE valid_to IS NULL OR valid_to >= _hr_first
), _hr_timed AS (
    SELECT _hr_kind, key, {valid_from} AS valid_from, _hr_end, deleted{values} FROM _hr_given
), _hr_ranked AS (
    SELECT *,
        row_number() OVER (
            PARTITION BY key, valid_from ORDER BY _hr_kind, task, sequence DESC
        ) AS _hr_nth,
        max(CASE _hr_kind WHEN 1 THEN 1 ELSE 0 END) OVER (
            PARTITION BY key, valid_from
        ) AS _hr_is_there
    FROM _hr_timed
), _hr_ordered AS (
    SELECT *,
        lead(valid_from) OVER (PARTITION BY key ORDER BY valid_from) AS _hr_next,
        lag(deleted) OVER (PARTITION BY key ORDER BY valid_from) AS _hr_behind_deletion
    FROM _hr_ranked WHERE _hr_nth = 1
), _hr_rows AS (
    SELECT *,
        CASE WHEN deleted THEN valid_from ELSE _hr_next END AS valid_to,
        deleted AND NOT coalesce(_hr_behind_deletion, TRUE) AS _hr_gone
    FROM _hr_ordered
)
SELECT key, valid_from, valid_to, deleted{values}, {batch} AS batch, _hr_gone
FROM _hr_rows
WHERE CASE
    WHEN _hr_gone THEN _hr_is_there = 1
    WHEN _hr_kind = 1 THEN valid_to IS NOT NULL AND (_hr_end IS NULL OR _hr_end <> valid_to)
    ELSE TRUE
END
UNION ALL
SELECT key, valid_from, NULL, deleted{values}, {batch}, FALSE
FROM {new} WHERE key IS NULL AND NOT deleted
"""
_NEVER_BACK = """CASE WHEN _hr_kind = 0 THEN max(valid_from) OVER (
        PARTITION BY key
        ORDER BY CASE _hr_kind WHEN 0 THEN 1 ELSE 0 END, task, sequence
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) ELSE valid_from END"""
"""The time of a version, or that of an earlier one of its key if that is later."""
_MERGE = """
MERGE INTO {table} AS kept USING ({changes}) AS new
ON kept.key = new.key AND kept.valid_from = new.valid_from AND {ends_since}
WHEN MATCHED AND new._hr_gone THEN DELETE
WHEN MATCHED THEN UPDATE SET {sets}
WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({new})
"""


def changes_of(
    columns: Sequence[str], kept: str, new: str, batch_id: int, *, in_order: bool = False
) -> str:
    """Return SQL that selects the rows of a table which versions change, with all columns and more.

    `columns` are the table's, `kept` is the table and `new` are the versions: SQL, too. A row with
    `_hr_gone` leaves the table. Any other takes the place of the row with its key and `valid_from`,
    or is added. Versions without a key are all added, since they end none.

    With `in_order`, versions that come later hold later, as results of a computed table do.
    """
    values = [quoted(name) for name in columns if name not in _OWN]
    return _CHANGES.format(
        kept=kept,
        new=new,
        batch=int(batch_id),
        values="".join(f", {name}" for name in values),
        values_there="".join(f", CASE _hr_kind WHEN 1 THEN {name} END" for name in values),
        valid_from=_NEVER_BACK if in_order else VALID_FROM,
    )


def merge_of(columns: Sequence[str], table: str, changes: str, since: str) -> str:
    """Return SQL that puts changes into a table; all of them end at `since` or later, or never."""
    names = [quoted(name) for name in columns]
    return _MERGE.format(
        table=table,
        changes=changes,
        ends_since=ends_since(since, "kept."),
        sets=", ".join(f"kept.{name} = new.{name}" for name in names),
        names=", ".join(names),
        new=", ".join(f"new.{name}" for name in names),
    )


def ends_since(since: str, of: str = "") -> str:
    """Return the condition by which Spark leaves out files of rows that ended before."""
    return f"({of}{VALID_TO} IS NULL OR {of}{VALID_TO} >= {since})"
