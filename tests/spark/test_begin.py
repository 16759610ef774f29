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
    assert said.startswith("Java ended before Spark began; the end of Spark's log says why. Look")
    assert "Invalid initial heap size: -Xmsmuch" in (tmp_path / "log").read_text()


@pytest.mark.long("spark", why="Java starts before Spark refuses")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("spark.driver.memory: 300m", "SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] Sys"),
        ("spark.network.timeout: many", "NumberFormatException: Time must be specified as seconds"),
        ("spark.serializer: no.Such", "ClassNotFoundException: no.Such"),
        ("spark.files: /no/such", "FileNotFoundException: File file:/no/such does not exist"),
        # Spark reads these only when the session makes its state.
        (
            "spark.sql.codegen.cache.maxEntries: many",
            "IllegalArgumentException: spark.sql.codegen.cache.maxEntries should be int, but was",
        ),
        (
            "spark.sql.session.timeZone: Mars",
            "SparkIllegalArgumentException: [INVALID_CONF_VALUE.TIME_ZONE] The value 'Mars' in the",
        ),
    ],
)
def test_settings_that_spark_refuses_are_a_sentence(
    tmp_path: Path, setting: str, said: str
) -> None:
    done = begun(tmp_path, f"spark: {{{setting}}}\n")
    assert done.returncode == 2, done.stderr
    _, sentence = done.stderr.splitlines()
    assert sentence.startswith(f"Spark does not begin with the settings of this job: {said}")
    assert setting.partition(":")[0] in sentence


@pytest.mark.long("spark", why="Java starts before Spark refuses")
def test_a_refusal_that_names_no_setting_lists_those_of_the_job(tmp_path: Path) -> None:
    settings = "spark.network.timeout: 90s, spark.sql.autoBroadcastJoinThreshold: much"
    done = begun(tmp_path, f"spark: {{{settings}}}\n")
    assert done.returncode == 2, done.stderr
    _, said = done.stderr.splitlines()
    assert said.endswith(
        ". Spark names no setting; those of the job are `spark.network.timeout`,"
        " `spark.sql.autoBroadcastJoinThreshold`"
    )


@pytest.mark.long("spark", why="Java starts before Spark ends it")
def test_a_setting_with_which_spark_ends_java_is_a_sentence(tmp_path: Path) -> None:
    done = begun(tmp_path, "spark: {spark.local.dir: /proc/none}\n")
    assert done.returncode == 2, done.stderr
    _, said = done.stderr.splitlines()
    assert said.startswith("Java ended before Spark began; the end of Spark's log says why. Look")
    assert "Failed to create any local dir" in (tmp_path / "log").read_text()


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
