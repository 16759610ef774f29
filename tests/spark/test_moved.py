"""A checkpoint whose state was moved takes the place of the one before, and nothing else does."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts.errors import SettingsInvalid, StateOfOtherOptions
from headrace.spark_jobs.jobs.move import headers_of, move, move_rows, refuse_headers
from headrace.spark_jobs.jobs.moved import Moves, Origin
from headrace.spark_jobs.observe.state import read_state
from headrace.spark_jobs.operators.frames import MOVED_SCHEMA, Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.pairs import left_of, right_of
from headrace.spark_jobs.operators.topology import Topic, Topology
from headrace.spark_jobs.versioned.layout import encode_numbers
from headrace.spark_jobs.versioned.spread import TASKS_BY_KEY
from headrace.spark_jobs.versioned.tables import Plain
from tests.spark.frames import Row, stream_rows, write_rows
from tests.spark.pointing import JOIN, LEFT, changes, pairs_of, pairs_told


class Checkpoint:
    """A folder in which somebody else has written what Spark writes."""

    def __init__(self, folder: Path) -> None:
        """Make it empty."""
        self.folder = folder

    def put(self, place: str, text: str = "") -> None:
        """Write a file."""
        file = self.folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def names(self) -> list[str]:
        """Return what it says of moves."""
        return sorted(one.name for one in (self.folder / "move").glob("[a-z]*"))


def test_a_checkpoint_that_was_never_moved_begins_with_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    moves = Moves(spark, str(tmp_path))
    moves.stay()
    assert moves.origin() == Origin()


def test_a_job_that_goes_on_ends_a_move_that_was_begun(spark: SparkSession, tmp_path: Path) -> None:
    old = Checkpoint(tmp_path)
    old.put("move/begun-1", json.dumps({"to": "new", "batch": 3}))
    Moves(spark, str(tmp_path)).stay()
    assert old.names() == []


def test_of_two_moves_at_a_time_none_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    old, moves = Checkpoint(tmp_path), Moves(spark, str(tmp_path))
    begun = moves.begin(json.dumps({"to": "new", "batch": 3}))
    with pytest.raises(StateOfOtherOptions, match="another command moves the state of"):
        moves.begin(json.dumps({"to": "other", "batch": 3}))
    moves.stay()
    assert not moves.end(begun)
    assert moves.end(moves.begin(json.dumps({"to": "new", "batch": 3})))
    assert old.names() == ["done"]
    with pytest.raises(StateOfOtherOptions, match="was moved to `new`"):
        moves.begin(json.dumps({"to": "other", "batch": 3}))


def test_a_checkpoint_is_refused_once_its_state_was_moved(
    spark: SparkSession, tmp_path: Path
) -> None:
    Checkpoint(tmp_path).put("move/done", json.dumps({"to": "new", "batch": 3}))
    written: list[int] = []
    write = Moves(spark, str(tmp_path)).guarded(lambda _, number: written.append(number), Origin())
    with pytest.raises(StateOfOtherOptions, match="was moved to `new`; name that checkpoint"):
        write(spark.range(1), 7)
    assert written == []


def test_a_new_checkpoint_counts_only_once_the_old_one_has_left_to_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = Checkpoint(tmp_path / "old"), Checkpoint(tmp_path / "new")
    said = {"from": str(old.folder), "to": "new", "batch": 3, "starts": {"t": {"0": 5}}}
    moves = Moves(spark, str(new.folder))
    new.put("move/part")
    with pytest.raises(StateOfOtherOptions, match="is not there as a whole"):
        moves.origin()
    old.put("metadata")
    new.put("move/whole", json.dumps(said))
    with pytest.raises(StateOfOtherOptions, match="and that was not finished"):
        moves.origin()
    old.put("move/done", json.dumps({"to": "another", "batch": 3}))
    with pytest.raises(StateOfOtherOptions, match="and that was not finished"):
        moves.origin()
    old.put("move/done", json.dumps({"to": "new", "batch": 3}))
    rows = f"file:{new.folder}/move/rows"
    assert moves.origin() == Origin(3, {"t": {"0": 5}}, rows)
    new.put("offsets/0")
    (old.folder / "move/done").unlink()
    assert moves.origin() == Origin(3, {"t": {"0": 5}}, rows)
    new.put("commits/.0.tmp")
    assert moves.origin() == Origin(3, {"t": {"0": 5}}, rows)
    new.put("commits/101")
    assert moves.origin() == Origin(3, {"t": {"0": 5}}, None)
    written: list[int] = []
    moves.guarded(lambda _, number: written.append(number), moves.origin())(spark.range(1), 4)
    assert written == [7]


def test_a_checkpoint_with_an_open_micro_batch_is_not_moved(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = Checkpoint(tmp_path / "old")
    old.put("metadata", json.dumps({"id": "one"}))
    old.put("offsets/0")
    new = str(tmp_path / "new")
    with pytest.raises(StateOfOtherOptions, match="was begun and not finished; stop the job"):
        move(spark, str(old.folder), new, 3)
    old.put("commits/0")
    Checkpoint(tmp_path / "new").put("file")
    with pytest.raises(StateOfOtherOptions, match="is not empty; name a folder that does not"):
        move(spark, str(old.folder), new, 3)


def test_a_step_without_state_is_not_moved() -> None:
    header = encode_numbers({TASKS_BY_KEY: 4})
    refuse_headers({0: {0: header, 3: header}}, "old", 2)
    with pytest.raises(SettingsInvalid, match="`old` has its state in 4 tasks already"):
        refuse_headers({0: {0: header}}, "old", 4)
    with pytest.raises(StateOfOtherOptions, match="`old` has had no record yet"):
        refuse_headers({0: {0: header}, 1: {}}, "old", 2)


def _told(
    spark: SparkSession, topology: Topology, rows: DataFrame, tasks: int, checkpoint: Path
) -> list[dict[str, Any]]:
    """All that a query tells, from where its checkpoint begins."""
    origin = Moves(spark, str(checkpoint)).origin()
    told: list[dict[str, Any]] = []
    origin.begin(spark)
    results = operate(topology, rows, Spread(tasks=tasks))
    origin.refuse_rows_left(spark)
    results = results.withColumn("mine", left_of("value")).withColumn("theirs", right_of("value"))

    def take(frame: DataFrame, _: int) -> None:
        told.extend(frame.orderBy("task", "sequence").toArrow().to_pylist())

    write = Moves(spark, str(checkpoint)).guarded(take, origin)
    writer = results.writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    origin.go_on(spark)
    query.awaitTermination()
    return told


@pytest.mark.long("spark", why="two queries of three stages each")
@pytest.mark.parametrize("tasks", [2, 7])
def test_each_stage_begins_with_its_own_rows(
    spark: SparkSession, tmp_path: Path, tasks: int
) -> None:
    rows, left, right = changes(Random(tasks))
    half = len(rows) // 2
    old, new = tmp_path / "old", Checkpoint(tmp_path / "new")
    first, rest = (
        stream_rows(spark, write_rows(tmp_path / name, some))
        for name, some in (("a", rows[:half]), ("b", rows[half:]))
    )
    told = _told(spark, JOIN, first, 4, old)
    headers = headers_of(spark, str(old))
    with pytest.raises(SettingsInvalid, match="has its state in 4 tasks already"):
        refuse_headers(headers, str(old), 4)
    move_rows(spark, str(old), headers, str(new.folder / "move/rows"), tasks)
    said = {"from": str(tmp_path / "gone"), "to": "new", "batch": 1, "starts": {}}
    new.put("move/whole", json.dumps(said))
    told += _told(spark, JOIN, rest, tasks, new.folder)
    assert pairs_told(told) == pairs_of(left, right)
    kept = {(row.operator, row.task) for row in read_state(spark, str(new.folder))}
    assert kept == {(operator, task) for operator in range(3) for task in range(tasks)}
    assert spark.conf.get("spark.sql.optimizer.excludedRules", None) is None


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (["step:other:Topic"], "has no state of `left`; run the job as it was"),
        (
            ["step:left:Topic", "step:a b:Topic step:join:JoinStep"],
            "has state of `a b` and `join`, with which no step of the job goes on; run the job",
        ),
        (["step:left:Topic"], None),
    ],
)
def test_a_job_with_other_steps_does_not_begin_with_moved_state(
    spark: SparkSession, tmp_path: Path, stored: list[str], said: str | None
) -> None:
    row: Row = changes(Random(1))[0][0]
    rows = stream_rows(spark, write_rows(tmp_path / "in", [row]))
    folder = str(tmp_path / "rows")
    moved = [(operator, 0, "header", b"") for operator in stored]
    spark.createDataFrame(moved, MOVED_SCHEMA).write.parquet(folder)
    origin = Origin(rows=folder)
    origin.begin(spark)
    refused = nullcontext() if said is None else pytest.raises(StateOfOtherOptions, match=said)
    try:
        with refused:
            operate(Topic("left", LEFT, Plain()), rows, Spread(tasks=2))
            origin.refuse_rows_left(spark)
    finally:
        origin.go_on(spark)
