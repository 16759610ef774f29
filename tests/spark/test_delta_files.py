"""Tasks write the files of a Delta table: what Delta would write, once, and found by its bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import LongType, StringType, StructType

from headrace.contracts.errors import ReplayDiffers, WorkerStalled
from headrace.spark_jobs.operators.tabled import Tabled
from headrace.spark_jobs.write.batch import as_query
from headrace.spark_jobs.write.beside import MadeRows
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_files import is_deltas_alone
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.task_files import Files
from tests.spark.batches import bundles_of, sorted_rows
from tests.spark.tables import live_files
from tests.spark.test_delta import checked

TABLE = Tabled(StructType().add("text", StringType()).add("n", LongType()), corrects=False)
COLUMNS_IN_SQL = (
    "key STRING, timestamp TIMESTAMP, deleted BOOLEAN, task INT, sequence BIGINT, text STRING,"
    " n BIGINT, batch BIGINT"
)
KEYS = (b"a", None, b"\xff\xfe", "schlüssel".encode(), b"z" * 40)
TIMES_MS = (0, -1, -2_208_988_800_001, 1_700_000_000_123, 253_402_300_799_999)


def _bundles(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Rows in bundles of two, over two partitions."""
    return bundles_of(spark, range(first, first + count), KEYS, TIMES_MS, 2)


@dataclass
class Writing:
    """A driver that writes to a table; another one of the same query goes on where it ended."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.sink = DeltaSink("query", DeltaPlace(None, str(self.folder)))
        self.takes_files = self.sink.takes_made(self.spark, TABLE.schema)
        """Whether tasks may write."""

    def write(self, batch: int, count: int = 6) -> None:
        """Write a micro-batch by tasks."""
        bundles = _bundles(self.spark, 100 * batch, count)
        with as_query(self.spark, "one"):
            self.sink.write_made(MadeRows(bundles, TABLE, TABLE.rows_of), batch)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as Spark reads them, a key as its bytes."""
        return sorted_rows(self.spark.read.format("delta").load(str(self.folder)))

    def batches(self) -> list[int]:
        """The micro-batches of all rows, as they stand in the files."""
        files = live_files(self.folder)
        return sorted(number for file in files for number in _column(file, "batch"))

    def loose(self) -> set[str]:
        """The files of tasks that no commit names."""
        live = {path.name for path in live_files(self.folder)}
        return {path.name for path in self.folder.glob("*-one-*.parquet")} - live


def _column(file: Path, name: str) -> list[Any]:
    values: list[Any] = pq.read_table(file, columns=[name])[name].to_pylist()
    return values


def see_rows(spark: SparkSession, folder: Path) -> None:
    """Compare with what Delta's own writer makes, and look for each row by its bounds."""
    ours, deltas = Writing(spark, folder / "ours"), Writing(spark, folder / "deltas")
    assert ours.takes_files, "the table is not there"
    for batch in range(2):
        ours.write(batch, 10)
        rows = _bundles(spark, 100 * batch, 10).mapInArrow(TABLE.rows_of, TABLE.schema)
        with as_query(spark, "one"):
            deltas.sink.write(rows, batch)
    assert Writing(spark, ours.folder).takes_files, "the table is there"
    assert len(ours.rows()) == 20
    assert ours.rows() == deltas.rows()
    tables = [spark.read.format("delta").load(str(each.folder)) for each in (ours, deltas)]
    assert tables[0].schema == tables[1].schema
    assert tables[0].count() == tables[1].count() == 20, "the log knows how many there are"
    for name in ("timestamp", "text", "n"):
        low, high = tables[1].select(F.min(name), F.max(name)).collect()[0]
        for value in (low, high):
            same = [each.where(F.col(name) == F.lit(value)).count() for each in tables]
            assert same[0] == same[1] > 0, (name, value)
    for key in (KEYS[0], KEYS[-1]):
        assert tables[0].where(F.col("key") == F.lit(key.decode())).count() == 4, key
    # Either takes a micro-batch of the other for its own, as behind an upgrade or a setting.
    Writing(spark, deltas.folder).write(1, 10)
    with as_query(spark, "one"):
        rows = _bundles(spark, 100, 10).mapInArrow(TABLE.rows_of, TABLE.schema)
        Writing(spark, ours.folder).sink.write(rows, 1)
    assert len(ours.rows()) == len(deltas.rows()) == 20
    assert tables[0].where("n > 100").inputFiles() != tables[0].inputFiles(), "readers skip files"


def see_once(spark: SparkSession, folder: Path) -> None:
    """Write micro-batches again: behind a death, out of another driver, and with other rows."""
    table = folder / "once"
    first = Writing(spark, table)
    first.write(0)
    first.write(1)
    second = Writing(spark, table)
    second.write(1)
    assert (second.batches(), second.loose()) == ([0] * 6 + [1] * 6, set())
    with pytest.raises(ReplayDiffers, match="has 6 rows of it, and they are 5 now"):
        Writing(spark, table).write(1, 5)
    second.write(2)
    first.write(2)
    assert (first.batches()[12:], first.loose()) == ([2] * 6, set()), "the first one is late"
    # Another commit comes between, by which no number changes.
    DeltaTable.forPath(spark, str(table)).delete("batch = 0")
    first.write(3)
    assert first.batches() == [1] * 6 + [2] * 6 + [3] * 6
    with as_query(spark, "one"):
        assert first.sink.has_written(spark, "one", 3)
        assert not first.sink.has_written(spark, "one", 4)
    first.write(4, 0)
    assert first.sink.has_written(spark, "one", 4), "a micro-batch without rows counts as well"


def see_rivals(spark: SparkSession, folder: Path) -> None:
    """Have another driver commit the same micro-batch in the last moment, or die in it."""
    ours = Writing(spark, folder / "rivals")
    patch, found = pytest.MonkeyPatch(), Files.found

    def at_last(moment: Callable[[], object]) -> Callable[..., Any]:
        def look(files: Files, names: Sequence[str]) -> Any:
            patch.undo()
            moment()
            return found(files, names)

        return look

    ours.write(0)
    for batch in (1, 2):
        # A driver knows of its own last commit, or asks for the last number.
        rival = Writing(spark, ours.folder)
        driver = ours if batch == 1 else Writing(spark, ours.folder)
        patch.setattr(Files, "found", at_last(partial(rival.write, batch)))
        with pytest.raises(Exception, match="DELTA_CONCURRENT_TRANSACTION"):
            driver.write(batch)
        assert ours.batches() == sorted([*range(batch + 1)] * 6)

    refused = ours.loose()
    assert refused, "nobody knows whether a commit that failed is there: `VACUUM` removes them"

    def die() -> None:
        message = "in the last moment"
        raise OSError(message)

    dying = Writing(spark, ours.folder)
    patch.setattr(Files, "found", at_last(die))
    with pytest.raises(OSError, match="in the last moment"):
        dying.write(3)
    assert (ours.batches(), ours.loose()) == (sorted([0, 1, 2] * 6), refused)
    Writing(spark, ours.folder).write(3)
    assert ours.batches() == sorted([0, 1, 2, 3] * 6)
    # A compaction in the last moment takes nothing away from an append.
    ours = Writing(spark, ours.folder)
    compact = partial(spark.sql, f"OPTIMIZE delta.`{ours.folder}`")
    patch.setattr(Files, "found", at_last(compact))
    ours.write(4)
    assert ours.batches() == sorted([0, 1, 2, 3, 4] * 6)


TAKEN = {
    "plain": "",
    "noted": "TBLPROPERTIES ('delta.appendOnly' = 'true', 'made.by' = 'a user')",
}
REFUSED = {
    "parts": "PARTITIONED BY (task)",
    "near": "CLUSTER BY (task)",
    "named": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "feed": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "bounds": "TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2')",
}
OTHER_COLUMNS = {
    "never_null": COLUMNS_IN_SQL.replace("task INT", "task INT NOT NULL"),
    "more": f"{COLUMNS_IN_SQL}, note STRING",
    "wide": COLUMNS_IN_SQL.replace("task INT", "task BIGINT"),
    "capitals": COLUMNS_IN_SQL.upper(),
}


def see_others(spark: SparkSession, folder: Path) -> None:
    """Leave tables to Delta's own writer that ask for more, from the start or in the middle."""

    def made(name: str, columns: str, clause: str = "") -> Writing:
        at = folder / name
        spark.sql(f"CREATE TABLE delta.`{at}` ({columns}) USING delta {clause}")
        return Writing(spark, at)

    for name, clause in TAKEN.items():
        assert made(name, COLUMNS_IN_SQL, clause).takes_files, name
    for name, clause in REFUSED.items():
        assert not made(name, COLUMNS_IN_SQL, clause).takes_files, name
    for name, columns in OTHER_COLUMNS.items():
        assert not made(name, columns).takes_files, name
    asking = spark.table(f"delta.`{folder}/plain`").schema
    asking["n"].metadata = {"delta.invariants": '{"expression": {"expression": "n > 3"}}'}
    spark.createDataFrame([], asking).write.format("delta").save(str(folder / "asking"))
    assert not Writing(spark, folder / "asking").takes_files
    merging = DeltaSink("query", DeltaPlace(None, str(folder / "new")), mode="upsert")
    assert not merging.takes_made(spark, TABLE.schema)

    table = Writing(spark, folder / "plain")
    table.write(0)
    spark.sql(f"ALTER TABLE delta.`{table.folder}` ADD CONSTRAINT few CHECK (task < 3)")
    with pytest.raises(WorkerStalled, match="start the job again, and it will take that"):
        table.write(1)
    assert (table.batches(), table.loose()) == ([0] * 6, set())
    assert not Writing(spark, table.folder).takes_files


def see_all(spark: SparkSession, folder: Path) -> None:
    """All in one session, which takes long to start."""
    for see in (see_rows, see_once, see_rivals):
        see(spark, folder)


def test_a_table_of_files_that_tasks_wrote_is_as_delta_would_write_it(tmp_path: Path) -> None:
    checked(see_all, tmp_path)


@pytest.mark.long("spark", why="it starts a session of its own, with Delta, and makes ten tables")
def test_a_table_that_asks_for_more_than_files_gets_deltas_own_writer(tmp_path: Path) -> None:
    checked(see_others, tmp_path)


def test_a_setting_of_deltas_writer_has_it_write() -> None:
    assert is_deltas_alone("spark.databricks.delta.optimizeWrite.enabled")
    assert not is_deltas_alone("spark.databricks.delta.snapshotPartitions")
    assert not is_deltas_alone("spark.sql.shuffle.partitions")
