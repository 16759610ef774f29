"""`headrace spark state` and `spark move` say a sentence of their own; Spark's log is a file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.cli import spark as command
from headrace.spark_jobs.jobs.move import move
from headrace.spark_jobs.observe.state import read_state
from tests.pages import installed
from tests.spark.driver import QUICK_JAVA

NO_STATE = "empty is no checkpoint with state in it; name the job's checkpoint"
NO_JOB = "file:{folder}/empty is no checkpoint of a job that has finished a micro-batch"


def test_a_folder_without_a_checkpoint_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(StateUnavailable) as shown:
        list(read_state(spark, str(empty)))
    assert str(shown.value).endswith(NO_STATE)
    with pytest.raises(StateUnavailable) as moved:
        move(spark, str(empty), str(tmp_path / "new"), 2)
    assert str(moved.value) == NO_JOB.format(folder=tmp_path)


def test_a_folder_that_is_missing_is_not_made(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable, match="missing is no checkpoint with state in it"):
        list(read_state(spark, str(tmp_path / "missing")))
    assert not (tmp_path / "missing").exists()


def test_more_tasks_than_a_job_may_have_are_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_session", lambda *_: pytest.fail("it starts Spark"))
    with pytest.raises(SystemExit) as ended:
        command.app(["move", "old", "new", "--tasks", "200000"])
    assert ended.value.code != 0
    said = " ".join(capsys.readouterr().err.replace("\u2502", " ").split())
    assert '"200000" for --tasks. Must be <= 100000.' in said


@pytest.mark.long("spark", why="each command starts Java; the sentences are tested above")
@pytest.mark.parametrize(
    ("command", "said"),
    [(["state", "empty"], NO_STATE), (["move", "empty", "new", "--tasks", "2"], NO_JOB)],
)
def test_a_command_says_one_sentence_beside_the_place_of_sparks_log(
    tmp_path: Path, command: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    ended = subprocess.run(
        ["headrace", "spark", *command],  # noqa: S607 - of the environment that we give it
        cwd=tmp_path,
        env={**installed(), "JDK_JAVA_OPTIONS": QUICK_JAVA, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (4, ""), ended.stderr
    place, sentence = ended.stderr.splitlines()
    log = re.fullmatch(r"Spark's own log is in (.+)", place)
    assert log is not None
    assert "NOTE: Picked up JDK_JAVA_OPTIONS" in Path(log[1]).read_text()
    assert sentence.endswith(said.format(folder=tmp_path))
