"""A backfill whose driver dies, at any moment, is finished by the same command: each order once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import pytest
from pyspark import TaskContext

from headrace.spark_jobs.jobs.filled import Filled
from headrace.spark_jobs.write.output import KafkaOutput, TableOutput
from tests.architecture.source import ROOT
from tests.kafka.fixtures import SharedKafka
from tests.spark.commands import ended, run_commands
from tests.spark.driver import KILLED, Driver, dying_behind, kill_session
from tests.spark.test_backfill import FROM, TO, World

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Moment = Literal["behind the plan", "behind the dead", "in the rows", "behind the rows"]
_BACKFILL = ["spark", "backfill", "ahead.yaml", "--from", FROM, "--to", TO, "--master", "local[1]"]


def run_struck(folder: Path, moment: Moment) -> None:
    """The life of one driver, which dies at a moment of its backfill."""
    driver, strikes = os.getpid(), pytest.MonkeyPatch()
    if moment == "behind the plan":
        strikes.setattr(Filled, "begin", dying_behind(Filled.begin))
    elif moment == "behind the dead":
        strikes.setattr(KafkaOutput, "write", dying_behind(KafkaOutput.write))
    elif moment == "behind the rows":
        strikes.setattr(Filled, "end", lambda _: kill_session(driver))
    else:
        write = TableOutput.write_apart

        def write_apart(
            output: TableOutput, rows: DataFrame, asides: DataFrame, batch_id: int
        ) -> None:
            struck = rows.mapInArrow(_dying_in(driver, folder / "ahead"), rows.schema)
            write(output, struck, asides, batch_id)

        strikes.setattr(TableOutput, "write_apart", write_apart)
    # Workers run in this folder too, and find the function that kills from here.
    run_commands(folder, [_BACKFILL], {"PYTHONPATH": str(ROOT)})


def _dying_in(
    driver: int, table: Path
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        # One task runs at a time: the first one has written its file, and this one has not.
        if TaskContext.get() is not None and any(table.rglob("*.parquet")):
            kill_session(driver)

    return pass_on


@pytest.mark.long("drivers", why="drivers are killed and started anew")
@pytest.mark.parametrize(
    ("kind", "described"), [("parquet", "job"), ("delta", "query"), ("iceberg", "job")]
)
def test_a_backfill_that_was_killed_is_finished(
    kafka: SharedKafka, tmp_path: Path, kind: str, described: str
) -> None:
    world = World(kafka, tmp_path, kind, described)
    for number, moment in enumerate(get_args(Moment)):
        driver = Driver(tmp_path / f"driver-{number}.log", run_struck, tmp_path, moment)
        assert driver.wait() == KILLED, driver.log
    assert any((tmp_path / "ahead").rglob("*.parquet"))
    commands = [_BACKFILL, *(["spark", f"{job}.yaml", "--once"] for job in ("ahead", "plain"))]
    driver = Driver(tmp_path / "driver.log", run_commands, tmp_path, commands, {})
    assert driver.wait() == 0, driver.log
    assert [each.exit_code for each in ended(driver.log)] == [0, 0, 0], driver.log
    assert world.rows("ahead") == world.expected()
    assert set(world.dead("prices").values()) == {2}
    assert sorted(world.dead("orders").values()) == [2, 2, 2]
