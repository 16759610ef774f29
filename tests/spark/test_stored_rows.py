"""Rows in Spark's store, read one by one and all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.spark_jobs.operators import row_calls
from headrace.spark_jobs.operators.row_calls import RowCalls
from headrace.spark_jobs.operators.rows import NAME_SCHEMA, ROW_SCHEMA, StoredRows
from headrace.spark_jobs.seams import SCANS_IN_COLUMNS, begin_state_registry

ROWS = 2_500
"""More than twice what a part of a scan has."""
LARGE = bytes(range(256)) * 4_096


class Reading(StatefulProcessor):
    """Puts rows, and tells which of the two ways to read them finds what."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the rows."""
        maps = [handle.getMapState(name, NAME_SCHEMA, ROW_SCHEMA) for name in ("rows", "runs")]
        self.rows = StoredRows(*maps)

    def handleInputRows(  # noqa: N802 (as Spark calls it)
        self, _key: Any, rows: Iterator[pd.DataFrame], _timers: Any
    ) -> Iterator[pd.DataFrame]:
        """Put, read, change and read again."""
        for _ in rows:
            pass
        names = [f"table/{number}" for number in range(ROWS)]
        for number, name in enumerate(names):
            self.rows.put(name, b"%d \x00\xff" % number)
        self.rows.put("table/7", LARGE)
        for name in ("kept", "changed"):
            self.rows.put(name, b"found by the scan")
        self.rows.put("table:run:1/0", b"no scan finds it")
        first = self.read([*names, "absent"])
        self.rows.put("changed", b"since")
        beside = self.asked(["kept", "changed"])
        self.rows.remove("table/8")
        self.rows.put("table/9", b"changed")
        with pytest.MonkeyPatch.context() as patch:
            # The machine for any pickle takes four times as long, and no row needs it.
            patch.setattr(row_calls, "_Reader", None)
            second = self.read(["table/9", "table/8", "table/7"])
        self.rows.scan(["table/7"])
        # Here a task ends, and the next one has rows of the same names.
        self.rows.settle()
        behind = self.asked(["kept"])
        yield pd.DataFrame({"said": [first, beside, second, self.read([]), behind]})

    def asked(self, names: list[str]) -> str:
        """Return what reading one by one finds, and in how many calls of the store."""
        calls: list[str] = []
        request = RowCalls.request

        def counted(given: RowCalls, call: str, **fields: bytes) -> bytes:
            calls.append(call)
            return request(given, call, **fields)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RowCalls, "request", counted)
            found = self.rows.get_all(names)
        return f"{found} in {len(calls)} calls"

    def read(self, names: list[str]) -> str:
        """Return what a scan found, if reading one by one finds the same."""
        scanned, read = self.rows.scan(names), self.rows.get_all(names)
        if scanned != read:
            return "they differ"
        return f"{len(scanned)} {[row if row is None else row[:9] for row in scanned[-3:]]}"


def test_a_scan_finds_the_rows_that_are_read_one_by_one(spark: SparkSession) -> None:
    begin_state_registry(spark)
    given = spark.createDataFrame([(1,)], "task int").groupBy("task")
    # One task has all rows, and each scan reads from the first of them.
    found = given.transformWithStateInPandas(Reading(), "said string", "Append", "None")
    assert [row.said for row in found.collect()] == [
        f"{ROWS + 1} [b'2498 \\x00\\xff', b'2499 \\x00\\xff', None]",
        f"[b'found by the scan', b'since'] in {1 if SCANS_IN_COLUMNS else 2} calls",
        f"3 [b'changed', None, {LARGE[:9]!r}]",
        "0 []",
        "[b'found by the scan'] in 1 calls",
    ]
