"""Delta tables that were there before a job: kept as they are, or refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StructType

from headrace.contracts.errors import JobInvalid, ReplayDiffers, SinkOfAnotherQuery
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.jobs.cold import ColdHistory, FallBack
from headrace.spark_jobs.read.decode import JsonValue
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.write.claims import refuse_missing_columns, refuse_other_columns
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_marker import marker_in, marker_text
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.snapshots import TableMarker
from tests.spark.batches import Row, batch_of
from tests.spark.driver import QUICK_JAVA, Driver

_OWN = "key STRING, timestamp TIMESTAMP, deleted BOOLEAN, task INT, sequence BIGINT, batch BIGINT"
_SAYS = "spark.databricks.delta.commitInfo.userMetadata"
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"


def on_a_session(check: Callable[[SparkSession, Path], None], folder: Path) -> None:
    """Check something on a session with Delta and a metastore, which other tests' session lacks."""
    metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    spark = open_session(
        "delta",
        master="local[1]",
        shuffle_partitions=1,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            # Derby writes its log there.
            "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dderby.system.home={folder}",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
        },
        connectors=CONNECTORS,
    )
    check(spark, folder)
    spark.stop()


def checked(check: Callable[[SparkSession, Path], None], folder: Path) -> None:
    driver = Driver(folder / "driver.log", on_a_session, check, folder)
    assert driver.wait() == 0, driver.log


def test_the_first_column_that_differs_is_named_whatever_its_case() -> None:
    refuse_other_columns("rows", ["KEY", "cents"], ["key", "Cents"])
    refuse_missing_columns("rows", ["key", "cents", "euros"], ["key", "cents"])
    with pytest.raises(JobInvalid, match="rows lacks the column `cents`, which each row has; add"):
        refuse_missing_columns("rows", ["key", "euros"], ["key", "cents"])
    with pytest.raises(JobInvalid, match="rows has a column `euros`, which no row has; drop it by"):
        refuse_other_columns("rows", ["key", "euros", "cents"], ["key", "cents"])


def test_a_name_that_no_later_start_would_find_is_refused(spark: SparkSession) -> None:
    DeltaPlace(None, "rows").check(spark)
    with pytest.raises(
        JobInvalid, match=r"`sales\.orders` is not there, and Spark's own catalog for"
    ):
        DeltaPlace("sales.orders", None).check(spark)
    unknown = (
        r"Spark knows no catalog `lake` of `lake\.sales\.orders`; set it up, such as by `spark: "
    )
    with pytest.raises(JobInvalid, match=unknown):
        DeltaPlace("lake.sales.orders", None).check(spark)


def see_columns(spark: SparkSession, folder: Path) -> None:
    """Write to tables that lack a column of the rows, or have one more."""

    def made(name: str, *more: str) -> str:
        table = f"{folder}/{name}"
        schema = ", ".join([_OWN, *more])
        spark.createDataFrame([], schema).write.format("delta").save(table)
        return table

    def rows_of(table: str) -> list[tuple[object, ...]]:
        rows = spark.read.format("delta").load(table)
        return [tuple(row[name] for name in ("key", "cents", "batch")) for row in rows.collect()]

    def write(table: str, mode: str, batch: int = 0) -> None:
        DeltaSink("query", DeltaPlace(None, table), mode=mode).write(
            batch_of(spark, [("a", 1, 10)]), batch
        )

    for mode in ("upsert", "append", "scd2"):
        lacking = made(f"lacking-{mode}")
        with pytest.raises(JobInvalid, match=rf"lacking-{mode} lacks the column `.*ALTER TABLE"):
            write(lacking, mode)
        assert spark.read.format("delta").load(lacking).isEmpty()
    # It was not this job's table, so another job may take it.
    spark.sql(f"ALTER TABLE delta.`{folder}/lacking-append` ADD COLUMNS (cents BIGINT)")
    write(f"{folder}/lacking-append", "upsert")

    # A merge would have written `true`, and an append would have ended with Delta's own error.
    for mode, other in (("upsert", "BOOLEAN"), ("append", "INT")):
        lies = made(f"other-{mode}", f"cents {other}")
        with pytest.raises(JobInvalid, match=f"`cents` as `{other.lower()}`, and the rows have it"):
            write(lies, mode)

    more = "cents BIGINT", "euros BIGINT"
    foreign = made("foreign", *more)
    with pytest.raises(JobInvalid, match="foreign has a column `euros`, which no row has"):
        write(foreign, "upsert")
    write(foreign, "append")
    assert rows_of(foreign) == [("a", 10, 0)]

    # The user has chosen that tables get the columns that they lack.
    spark.conf.set(_EVOLVES, "true")
    for mode in ("append", "upsert"):
        taken = made(f"taken-{mode}", "euros BIGINT")
        write(taken, mode)
        assert rows_of(taken) == [("a", 10, 0)]


@pytest.mark.long("spark", why="it starts a session of its own, with Delta")
def test_a_table_with_other_columns_is_refused_or_takes_them_where_the_user_says_so(
    tmp_path: Path,
) -> None:
    checked(see_columns, tmp_path)


def see_names_of_columns(spark: SparkSession, folder: Path) -> None:
    """Merge into columns whose names and fields are unlike those of others."""

    def write(table: str, batch: int, rows: DataFrame) -> None:
        DeltaSink("query", DeltaPlace(None, table), mode="upsert").write(rows, batch)

    # Delta does not quote the names that it puts in the place of a star.
    odd = f"{folder}/odd"
    for batch, cents in enumerate([10, 20]):
        rows = batch_of(spark, [("a", 1, cents)]).withColumnRenamed("cents", "ce`nts")
        write(odd, batch, rows)
    kept = spark.read.format("delta").load(odd).collect()
    assert [(row["key"], row["ce`nts"], row["batch"]) for row in kept] == [("a", 20, 1)]

    # Its maker wrote the names of our columns in capitals.
    capitals = f"{folder}/capitals"
    schema = f"{_OWN}, cents BIGINT".upper()
    spark.createDataFrame([], schema).write.format("delta").save(capitals)
    write(capitals, 0, batch_of(spark, [("a", 1, 10)]))
    found = spark.read.format("delta").load(capitals).select("cents", "batch").collect()
    assert [tuple(row) for row in found] == [(10, 0)]

    # A struct has other fields: one that the table lacks, and none that it has.
    spark.conf.set(_EVOLVES, "true")
    struct = f"{folder}/struct"
    schema = f"{_OWN}, cents STRUCT<was: BIGINT>"
    spark.createDataFrame([], schema).write.format("delta").save(struct)
    for batch in range(2):
        rows = batch_of(spark, [("a", 1, 10)]).withColumn(
            "cents", F.struct(F.col("cents").alias("now"))
        )
        write(struct, batch, rows)
    (row,) = spark.read.format("delta").load(struct).collect()
    assert (row["cents"].asDict(), row["batch"]) == ({"was": None, "now": 10}, 1)


@pytest.mark.long("spark", why="it starts a session of its own, with Delta")
def test_rows_are_merged_into_columns_of_any_name_and_into_structs_with_other_fields(
    tmp_path: Path,
) -> None:
    checked(see_names_of_columns, tmp_path)


def see_replays(spark: SparkSession, folder: Path) -> None:
    """Write a micro-batch once more, as a driver that was just started."""
    place = DeltaPlace(None, f"{folder}/rows")
    spark.conf.set(_SAYS, "nightly")

    def write(batch: int, rows: list[Row], query: str = "query", *, repeats: bool = True) -> None:
        sink = DeltaSink(query, place, mode="append", repeats=repeats)
        sink.write(batch_of(spark, rows, query), batch)

    write(0, FIRST)
    write(1, LATER)
    for batch in range(9):
        write(batch, [("a", 1, 1)], "another")
    spark.sql(f"OPTIMIZE delta.`{place.folder}`")
    write(1, LATER)
    write(1, [("a", 4, 40)], repeats=False)
    with pytest.raises(ReplayDiffers, match="rows has 4 rows of it, and they are 3 now; start it"):
        write(1, LATER[:3])
    with pytest.raises(ReplayDiffers, match="rows has 4 rows of it, and they are others; start it"):
        write(1, [*LATER[:3], ("c", 8, None)])
    write(2, FIRST)
    said = [row["userMetadata"] for row in place.read(spark).history().collect()]
    assert said[0].startswith(
        'nightly {"headrace.query.query":{"query_id":"query","batch":2,"rows":3,'
    )
    assert spark.conf.get(_SAYS) == "nightly"
    assert place.read(spark).toDF().count() == len(FIRST) + len(LATER) + 9 + len(FIRST)


@pytest.mark.long("spark", why="it starts a session of its own, with Delta")
def test_a_micro_batch_that_comes_out_otherwise_is_refused_behind_other_commits_too(
    tmp_path: Path,
) -> None:
    checked(see_replays, tmp_path)


def see_history(spark: SparkSession, folder: Path) -> None:
    """Keep a history where another table is, and where rows in Parquet are."""
    other = str(folder / "other")
    spark.createDataFrame([], _OWN).write.format("delta").save(other)
    spark.range(1).write.parquet(f"{folder}/rows/checkpoint=a/batch=0")
    for place, said in ((other, "is a table of something else"), (f"{folder}/rows", "has rows")):
        fall_back = FallBack(place, "prices", "left", lambda rows, _: rows)
        as_json = JsonValue(StructType().add("cents", "long"))
        with pytest.raises(JobInvalid, match=said):
            ColdHistory(fall_back, Source("here:1"), "prices", [0], as_json).keep(spark)


@pytest.mark.long("spark", why="it starts a session of its own, with Delta")
def test_a_history_is_not_kept_in_a_folder_of_something_else(tmp_path: Path) -> None:
    checked(see_history, tmp_path)


def test_a_marker_is_found_behind_a_text_of_the_users_and_is_of_one_query() -> None:
    marker = TableMarker("id", 3, 2, "00ff")
    text = marker_text("", "a", marker)
    assert marker_in(text, "a") == marker
    assert marker_in(marker_text('{"ours": 1}', "a", marker), "a") == marker
    assert marker_in(marker_text(text, "b", marker._replace(batch=4)), "a") == marker
    assert marker_in(text, "a-b") is None
    assert marker_in("nightly", "a") is None
    assert marker_in(None, "a") is None


class Orders:
    """Tables of a database, which drivers write to one after the other."""

    def __init__(self, spark: SparkSession) -> None:
        """Make the database, as a user would."""
        self.spark = spark
        spark.sql("CREATE DATABASE sales")

    def write(
        self, name: str, mode: str, batch: int, rows: list[Row], query: str = "query"
    ) -> None:
        """Write a micro-batch as a driver that was just started."""
        place = DeltaPlace(f"sales.{name}", None)
        place.check(self.spark)
        DeltaSink(query, place, mode=mode).write(batch_of(self.spark, rows), batch)

    def has(self, name: str, batch: int) -> bool:
        """Say whether a table has a micro-batch."""
        sink = DeltaSink("query", DeltaPlace(f"sales.{name}", None))
        return sink.has_written(self.spark, "one", batch)

    def rows(self, name: str, *columns: str) -> list[tuple[object, ...]]:
        """Columns of all rows, in their order."""
        found = self.spark.table(f"sales.{name}").selectExpr(*columns).orderBy(*columns)
        return [tuple(row) for row in found.collect()]


FIRST: list[Row] = [("a", 1, 10), ("b", 2, 20), (None, 3, 30)]
LATER: list[Row] = [("a", 4, 40), ("a", 5, None), ("b", 6, 60), ("c", 7, None)]
MODES: dict[str, tuple[tuple[str, ...], list[tuple[object, ...]]]] = {
    "append": (
        ("key", "cents", "batch"),
        [
            *((None, 30, 0), ("a", None, 1), ("a", 10, 0), ("a", 40, 1), ("b", 20, 0)),
            *(("b", 60, 1), ("c", None, 1)),
        ],
    ),
    "upsert": (("key", "cents", "batch"), [(None, 30, 0), ("b", 60, 1)]),
    "scd2": (
        ("key", "unix_seconds(valid_from)", "unix_seconds(valid_to)", "cents"),
        [
            *((None, 3, None, 30), ("a", 1, 4, 10), ("a", 4, 5, 40), ("b", 2, 6, 20)),
            *(("b", 6, None, 60), ("c", 7, 7, None)),
        ],
    ),
}
"""By mode, the columns to look at, and the rows behind both micro-batches."""


def see_names(spark: SparkSession, _folder: Path) -> None:
    """Write to tables by their names in Spark's own catalog."""
    orders = Orders(spark)
    own = f"{_OWN}, cents BIGINT"
    versions = own.replace("timestamp TIMESTAMP", "valid_from TIMESTAMP, valid_to TIMESTAMP")
    for mode, (columns, wanted) in MODES.items():
        for kind, clause in (("new", ""), ("parts", "PARTITIONED BY"), ("near", "CLUSTER BY")):
            name = f"{kind}_{mode}"
            if clause:
                schema = versions if mode == "scd2" else own
                spark.sql(f"CREATE TABLE sales.{name} ({schema}) USING delta {clause} (key)")
            assert not orders.has(name, 0)
            orders.write(name, mode, 0, FIRST)
            orders.write(name, mode, 1, LATER)
            # The driver died behind the micro-batch.
            orders.write(name, mode, 1, LATER)
            with pytest.raises(ReplayDiffers, match=f"{name}` has 4 rows of it, and they are 1 "):
                orders.write(name, mode, 1, [("twice", 8, 80)])
            assert (orders.has(name, 1), orders.has(name, 2)) == (True, False)
            with pytest.raises(SinkOfAnotherQuery, match="micro-batch 1, and its checkpoint is"):
                orders.write(name, mode, 0, [("lost", 9, 90)])
            assert orders.rows(name, *columns) == wanted
            detail = spark.sql(f"DESCRIBE DETAIL sales.{name}").collect()[0]
            found = detail["partitionColumns"], detail["clusteringColumns"]
            at = ["key"]
            assert found == {"new": ([], []), "parts": (at, []), "near": ([], at)}[kind]

    with pytest.raises(
        SinkOfAnotherQuery, match=r"`sales\.new_append` was written with `mode: app"
    ):
        orders.write("new_append", "upsert", 2, FIRST)
    spark.sql("CREATE TABLE sales.files (key STRING) USING parquet")
    with pytest.raises(JobInvalid, match=r"`sales\.files` cannot be read as a table of Delta: "):
        orders.write("files", "append", 0, FIRST)
    spark.sql("CREATE VIEW sales.seen AS SELECT 'a' AS key")
    with pytest.raises(JobInvalid, match=r"`sales\.seen` cannot be read as a table of Delta: "):
        orders.write("seen", "append", 0, FIRST)
    with pytest.raises(JobInvalid, match=r"`nowhere\.orders` cannot be made: .*SCHEMA_NOT_FOUND"):
        DeltaSink("query", DeltaPlace("nowhere.orders", None)).write(batch_of(spark, FIRST), 0)
    left = f"{spark.conf.get('spark.sql.warehouse.dir')}/sales.db/left"
    spark.createDataFrame([], _OWN).write.format("delta").save(left)
    with pytest.raises(JobInvalid, match=r"`sales\.left` cannot be made: .* A job that died while"):
        orders.write("left", "append", 0, FIRST)


@pytest.mark.long("spark", why="it starts a session of its own, with Delta and a metastore")
def test_rows_are_once_in_a_table_by_its_name_which_stays_as_its_maker_divided_it(
    tmp_path: Path,
) -> None:
    checked(see_names, tmp_path)
