"""Wrong options of Java, settings of Spark and masters are sentences."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from tests.pages import installed

JOB = """\
query: SELECT a, count(*) AS rows FROM t GROUP BY a
tables: {t: {topic: t, schema: a STRING}}
name: begins
servers: localhost:1
checkpoint: ./checkpoint
sink: {delta: {folder: ./table}}
"""


def begun(folder: Path, more: str = "", *arguments: str) -> CompletedProcess[str]:
    """Start a job with more lines in its file."""
    (folder / "job.yaml").write_text(JOB + more)
    command = ["headrace", "spark", "job.yaml", "--once", "--log", "log", *arguments]
    return run(command, cwd=folder, env=installed(), capture_output=True, text=True, check=False)


@pytest.mark.long("spark", why="Java starts before it refuses")
def test_options_that_java_refuses_are_a_sentence(tmp_path: Path) -> None:
    done = begun(tmp_path, "spark: {spark.driver.extraJavaOptions: -Xmsmuch}\n")
    assert done.returncode == 2, done.stderr
    _, said = done.stderr.splitlines()
    assert said.startswith("Java ended before Spark began; the last line of Spark's log says why.")
    assert "Invalid initial heap size: -Xmsmuch" in (tmp_path / "log").read_text()


@pytest.mark.long("spark", why="Java starts before Spark refuses")
def test_settings_that_spark_refuses_are_a_sentence(tmp_path: Path) -> None:
    done = begun(tmp_path, "spark: {spark.driver.memory: 300m}\n")
    assert done.returncode == 2, done.stderr
    _, said = done.stderr.splitlines()
    assert said.startswith("Spark does not begin with the settings of this job: [INVALID_DRIVER_")
    assert '"spark.driver.memory"' in said


def test_a_master_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    done = begun(tmp_path, "", "--master", "localhost:7077")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "`--master localhost:7077` names no cluster; write local[N], spark://HOST:PORT, yarn or"
        " k8s://HOST:PORT\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics-port", "99999"), '"99999" for --metrics-port. Must be <= 65535.'),
        (
            ("--metrics-host", "192.0.2.1"),
            "`--metrics-host 192.0.2.1` does nothing without a port; add one, such as",
        ),
    ],
)
def test_an_address_of_metrics_that_is_none_is_a_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = begun(tmp_path, "", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
