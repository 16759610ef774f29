"""The SQL that keeps a history says what its oracle says, however versions come."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark_jobs.write.scd2 import changes_of
from tests.oracles.scd2 import Came, Kept, history

COLUMNS = ("key", "valid_from", "valid_to", "deleted", "task", "sequence", "batch", "`key`")
VALUE = "```key```"
AT = "SELECT * FROM kept WHERE valid_from <= :t AND (valid_to > :t OR valid_to IS NULL)"


class Table:
    """A table in memory, with the columns of one in Spark."""

    def __init__(self, *, in_order: bool = False) -> None:
        """Begin empty."""
        self._in_order = in_order
        self._batch = 0
        self._base = sqlite3.connect(":memory:")
        columns = "key, valid_from, valid_to, deleted, task, sequence, batch"
        self._base.execute(f"CREATE TABLE kept ({columns}, {VALUE})")

    def take(self, versions: Sequence[Came]) -> int:
        """Merge a micro-batch; return how many rows it changed."""
        base = self._base
        base.execute("DROP TABLE IF EXISTS new")
        base.execute(f"CREATE TABLE new (key, valid_from, deleted, task, sequence, {VALUE})")
        came = [
            (one.key, one.at, one.value is None, one.task, one.sequence, one.value)
            for one in versions
        ]
        base.executemany("INSERT INTO new VALUES (?, ?, ?, ?, ?, ?)", came)
        sql = changes_of(COLUMNS, "kept", "new", self._batch, in_order=self._in_order)
        found = base.execute(sql)
        names = [one[0] for one in found.description]
        changes = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        places = [(one["key"], one["valid_from"]) for one in changes if one["key"] is not None]
        assert len(places) == len(set(places)), "a merge takes one change of a row"
        for change in changes:
            self._put(change, is_gone=bool(change.pop("_hr_gone")))
        self._batch += 1
        return len(changes)

    def _put(self, change: dict[str, object], *, is_gone: bool) -> None:
        where = (change["key"], change["valid_from"])
        done = self._base.execute("DELETE FROM kept WHERE key = ? AND valid_from = ?", where)
        assert done.rowcount == 1 or not is_gone, "only a row that is there can leave"
        assert change["batch"] == self._batch
        if not is_gone:
            row = [change[name] for name in COLUMNS]
            self._base.execute("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def at(self, time: int) -> dict[str, str]:
        """The value of each key at a time, by the condition that the page has for it."""
        found = self._base.execute(AT, {"t": time}).fetchall()
        return {row[0]: row[-1] for row in found if row[0] is not None}

    def close(self) -> None:
        """Give it up; Python 3.13 warns of one that is open when it is collected."""
        self._base.close()

    @property
    def rows(self) -> list[Kept]:
        """All rows, in an order."""
        rows = self._base.execute("SELECT * FROM kept").fetchall()
        assert all((row[-1] is None) == bool(row[3]) for row in rows)
        return _sorted([Kept(row[0], row[1], row[2], row[-1]) for row in rows])


def _sorted(rows: list[Kept]) -> list[Kept]:
    return sorted(rows, key=lambda row: (row.key or "", row.valid_from, row.value or ""))


@st.composite
def micro_batches(draw: st.DrawFn, tasks: int) -> list[list[Came]]:
    """Versions of few keys at few times, so that they meet; a task numbers its own."""
    batches = []
    sequence = 0
    for _ in range(draw(st.integers(1, 4))):
        batch = []
        for _ in range(draw(st.integers(0, 6))):
            sequence += 1
            key = draw(st.sampled_from(["a", "a", "b", None]))
            value = draw(st.sampled_from([f"v{sequence}", f"v{sequence}", None]))
            task = draw(st.integers(0, tasks - 1))
            batch.append(Came(key, draw(st.integers(0, 7)), task, sequence, value))
        batches.append(draw(st.permutations(batch)))
    return batches


@given(micro_batches(tasks=2))
def test_a_history_is_that_of_its_oracle(batches: list[list[Came]]) -> None:
    with closing(Table()) as table:
        for place, batch in enumerate(batches):
            table.take(batch)
            assert table.rows == _sorted(history(batches[: place + 1]))


@given(micro_batches(tasks=1))
def test_results_in_order_end_as_the_last_of_them_says(batches: list[list[Came]]) -> None:
    with closing(Table(in_order=True)) as table:
        for place, batch in enumerate(batches):
            table.take(batch)
            assert table.rows == _sorted(history(batches[: place + 1], in_order=True))
        every = [one for batch in batches for one in sorted(batch, key=lambda one: one.sequence)]
        last = {one.key: one.value for one in every if one.key is not None}
        current = {row.key: row.value for row in table.rows if row.key and row.valid_to is None}
        assert current == {key: value for key, value in last.items() if value is not None}


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), unique_by=lambda one: one[0]))
def test_a_history_does_not_depend_on_the_order_of_arrival(times: list[tuple[int, bool]]) -> None:
    versions = [Came("a", at, 0, at, f"v{at}" if lives else None) for at, lives in times]
    with closing(Table()) as one_by_one, closing(Table()) as at_once:
        for version in versions:
            one_by_one.take([version])
        at_once.take(versions)
        assert one_by_one.rows == at_once.rows
        for time in range(32):
            last = max(
                (one for one in versions if one.at <= time), key=lambda one: one.at, default=None
            )
            alive = {} if last is None or last.value is None else {"a": last.value}
            assert at_once.at(time) == alive


def test_a_late_version_changes_its_neighbours_alone() -> None:
    with closing(Table()) as table:
        table.take([Came("a", at, 0, at, f"v{at}") for at in range(0, 100, 10)])
        table.take([Came("b", 5, 0, 200, "b")])
        assert table.take([Came("a", 55, 0, 300, "late")]) == 2
        assert table.take([Came("a", 50, 0, 301, None)]) == 1, "a row leaves, its end stays"
        assert [row for row in table.rows if 40 <= row.valid_from < 60] == [
            Kept("a", 40, 50, "v40"),
            Kept("a", 55, 60, "late"),
        ]


def test_a_deletion_is_remembered_for_versions_that_are_late() -> None:
    with closing(Table()) as table:
        table.take([Came("a", 20, 0, 1, None)])
        assert table.rows == [Kept("a", 20, 20, None)], "a row that was never valid"
        table.take([Came("a", 10, 0, 2, "first")])
        assert table.rows == [Kept("a", 10, 20, "first")]
        table.take([Came("a", 15, 0, 3, None)])
        table.take([Came("a", 17, 0, 4, "between")])
        assert table.rows == [Kept("a", 10, 15, "first"), Kept("a", 17, 20, "between")]
