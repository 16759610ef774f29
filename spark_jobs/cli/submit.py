"""Hand a job to a cluster: the command of spark-submit, with all that must be said before Java."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from headrace.contracts.errors import ProgramMissing, SettingsInvalid
from headrace.spark_jobs.cli.how import DeployMode, How
from headrace.spark_jobs.connectors import connectors_for, names_iceberg, packages
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.observe.metrics import LOOPBACK
from headrace.spark_jobs.observe.waits import time_text
from headrace.spark_jobs.session import FILES, PACKAGES, is_for_submit

_SUBMITTED = Path(__file__).with_name("__main__.py")
_STANDALONE = "spark://"


def check_deploy_mode(how: How) -> None:
    """Refuse a driver in the cluster where there is none, or where Spark runs no Python driver."""
    if how.deploy_mode is DeployMode.CLIENT:
        return
    assert how.master is not None
    if how.is_here:
        message = (
            f"`--deploy-mode cluster` needs a cluster, and `--master {how.master}` is this machine;"
            " name one, such as yarn or k8s://HOST:PORT"
        )
        raise SettingsInvalid(message)
    if how.master.startswith(_STANDALONE):
        message = (
            f"`--deploy-mode cluster` does not work with `--master {how.master}`: Spark's own"
            " cluster runs no drivers in Python; leave it out, so that this machine runs the driver"
        )
        raise SettingsInvalid(message)


def submit_command(job: Path, config: JobConfig | None, how: How) -> list[str]:
    """Return the command that has a cluster run a job."""
    assert how.master is not None
    submit = ["spark-submit", "--master", how.master]
    is_sent = how.deploy_mode is DeployMode.CLUSTER
    if is_sent:
        submit += ["--deploy-mode", how.deploy_mode]
    settings = dict({} if config is None else config.spark)
    iceberg = names_iceberg(job) if config is None else config.sink.iceberg is not None
    missing = [packages(connectors_for(iceberg=iceberg)), settings.pop(PACKAGES, "")]
    if any(missing):
        submit += ["--packages", ",".join(filter(None, missing))]
    if is_sent:
        # The driver finds the file in the folder in which it starts.
        files = [str(job.absolute()), settings.pop(FILES, "")]
        submit += ["--files", ",".join(filter(None, files))]
    for name, value in settings.items():
        if is_for_submit(name):
            submit += ["--conf", f"{name}={value}"]
    submit += [str(_SUBMITTED), job.name if is_sent else str(job.absolute())]
    return submit + _options(how)


def _options(how: How) -> list[str]:
    """Return the options of the script that spark-submit runs."""
    options = ["--once"] if how.once else []
    if how.backfill is not None:
        options.append("--backfill")
        for name, time_ms in zip(("--from", "--to"), how.backfill, strict=True):
            options += [] if time_ms is None else [name, time_text(time_ms)]
    if how.metrics_at is not None:
        options += ["--metrics-port", str(how.metrics_at.port)]
        if how.metrics_at.host != LOOPBACK:
            options += ["--metrics-host", how.metrics_at.host]
    return options


def hand_over(command: list[str]) -> None:
    """Become that command."""
    beside = Path(sys.executable).with_name(command[0])
    program = str(beside) if beside.exists() else shutil.which(command[0])
    if program is None:
        message = "spark-submit is not on the path; it comes with pip install 'headrace[spark]'"
        raise ProgramMissing(message)
    if "PYSPARK_PYTHON" not in os.environ:
        # Else spark-submit takes the first `python3` on the path, in which PySpark may be missing.
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The driver replaces this process, so that it receives the signals and sets the exit code.
    os.execv(program, command)  # noqa: S606 - found beside our own Python, or on the path
