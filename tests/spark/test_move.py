"""A job's state is moved into other tasks in mid-stream, and every order is priced once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.pages import installed
from tests.spark.driver import KILLED, QUICK_JAVA
from tests.spark.struck import Moment
from tests.spark.test_changed_options import ORDERS, Job


def moved(job: Job, to: Path, tasks: int) -> tuple[int, str]:
    """Move the state of a job, which goes on from there; the exit code, and what is said."""
    command = ["headrace", "spark", "move", str(job.checkpoint), str(to), "--tasks", str(tasks)]
    ended = subprocess.run(
        command,
        env={**installed(), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        job.checkpoint, job.tasks = to, tasks
    said = ended.stdout + ended.stderr
    return ended.returncode, " ".join(said.split())


@pytest.mark.long("drivers", why="six drivers, and two moves between them")
@pytest.mark.parametrize(
    ("sink", "strike"),
    [
        ("kafka", "between writers"),
        ("delta", "behind the table"),
        ("iceberg", "behind the table"),
        ("parquet", "behind the table"),
    ],
)
def test_every_order_is_priced_once_across_moves(
    kafka: SharedKafka, tmp_path: Path, sink: str, strike: Moment
) -> None:
    job = Job(kafka, tmp_path, sink)
    job.send()
    first = job.run(grace="10s")
    assert first.exit_code == 0, first.log
    assert 0 < len(job.written()) < len(job.sent()), "some are held"
    old = job.checkpoint
    code, said = moved(job, tmp_path / "two", 2)
    assert code == 0, said
    job.checkpoint, job.tasks = old, 4
    refused = job.run(grace="10s")
    assert f"the state of `{old}` was moved to `file:{tmp_path}/two`" in refused.log
    job.checkpoint, job.tasks = tmp_path / "two", 2
    job.send()
    assert job.run(strike, grace="10s").exit_code == KILLED
    code, said = moved(job, tmp_path / "none", 8)
    assert "has a micro-batch that was begun and not finished" in said
    second = job.run(grace="10s")
    assert second.exit_code == 0, second.log
    assert set(job.written().values()) == {1}
    code, said = moved(job, tmp_path / "eight", 8)
    assert code == 0, said
    job.send()
    last = job.run(grace="0s")
    assert last.exit_code == 0, last.log
    assert job.written() == job.sent()


@pytest.mark.long("drivers", why="two drivers, and a move between them")
def test_orders_that_wait_for_progress_are_priced_once_behind_a_move(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path, "kafka")
    job.send()
    job.price(10_000)
    first = job.run(grace=None)
    assert first.exit_code == 0, first.log
    before = job.written()
    assert 0 < len(before) < len(job.sent()), "some are held"
    code, said = moved(job, tmp_path / "seven", 7)
    assert code == 0, said
    job.send()
    job.price(100_000)
    last = job.run(grace=None)
    assert last.exit_code == 0, last.log
    written = job.written()
    assert set(written.values()) == {1}
    # The orders' own last ones wait for an order behind them.
    assert len(before) + ORDERS < len(written)
    assert written.keys() <= job.sent().keys()
