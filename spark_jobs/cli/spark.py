"""`headrace spark`: run a job, or hand it to a cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from headrace.contracts.errors import ProgramMissing, SettingsInvalid
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.log import log_file
from headrace.spark_jobs.cli.python_job import LOCAL, PYTHON, How, run_file
from headrace.spark_jobs.cli.run import run_job
from headrace.spark_jobs.connectors import connectors_for, names_iceberg, packages
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.observe.state import StateRow, read_state, waits_of
from headrace.spark_jobs.session import PACKAGES, open_session
from headrace.spark_jobs.versioned.state import HEADER

_MASTER = re.compile(r"local(-cluster)?(\[.*\])?$|spark://|yarn$|k8s://")
_SUBMITTED = Path(__file__).with_name("__main__.py")


app = App(name="spark", help="Run a Spark job, or look into its checkpoint.")


@app.default
def run(
    job: Path,
    *,
    master: str = LOCAL,
    once: bool = False,
    metrics_port: int | None = None,
    log: Path | None = None,
    dry_run: Annotated[bool, Parameter(name="--print")] = False,
) -> None:
    """Run a Spark job on this machine, or on the cluster that a master names.

    Args:
        job: The job's YAML file, or a file of Python that calls `headrace.run`.
        master: local[N], or a cluster's address, to which spark-submit hands the job.
        once: End when everything that is there now is read.
        metrics_port: Serve Prometheus' metrics on this port of 127.0.0.1.
        log: The file for Spark's own log, on this machine; by default one whose name is printed.
        dry_run: Print the call of spark-submit, and run nothing.
    """
    if not _MASTER.match(master):
        message = (
            f"`--master {master}` names no cluster; write local[N], spark://HOST:PORT, yarn or"
            " k8s://HOST:PORT"
        )
        raise SettingsInvalid(message)
    if job.suffix == PYTHON:
        how = How(master, once=once, metrics_port=metrics_port, log=log, dry_run=dry_run)
        _run_python(job, how)
        return
    module, config = load_job(job)
    command = submit_command(job, config, master, once=once, metrics_port=metrics_port)
    if dry_run:
        _print(command)
    elif master.startswith("local"):
        file = log_file(config.name, log)
        sys.stderr.write(f"Spark's own log is in {file}\n")
        run_job(module, config, master=master, once=once, metrics_port=metrics_port, log=file)
    else:
        _hand_over(command)


def _run_python(job: Path, how: How) -> None:
    """Run a job's file, or only check it, or hand it to a cluster."""
    assert how.master is not None
    is_here = how.master.startswith("local")
    command = submit_command(job, None, how.master, once=how.once, metrics_port=how.metrics_port)
    if not is_here and not how.dry_run:
        _hand_over(command)
        return
    file = log_file(job.stem, how.log)
    sys.stderr.write(f"Spark's own log is in {file}\n")
    run_file(job, replace(how, master=how.master if is_here else LOCAL, log=file))
    if how.dry_run:
        _print(command)


def _print(command: list[str]) -> None:
    Console(highlight=False).print(shlex.join(command), soft_wrap=True)


@app.command
def state(checkpoint: str, *, rows: bool = False) -> None:
    """Show what a checkpoint remembers; the query may run meanwhile.

    Args:
        checkpoint: The folder that the job's file names.
        rows: Show every row, and not each task's header alone.
    """
    session = open_session("headrace spark state", master="local[1]", connectors=())
    session.sparkContext.setLogLevel("ERROR")
    try:
        print_state(read_state(session, checkpoint), Console(highlight=False), every_row=rows)
    finally:
        session.stop()


def print_state(found: Iterable[StateRow], console: Console, *, every_row: bool) -> None:
    """Print rows as a table, and which inputs the tasks wait for."""
    contents = Column("contents", overflow="fold")
    headers = []
    table = Table("operator", "task", "row", "kind", "bytes", contents)
    for row in found:
        if row.name == HEADER:
            headers.append(row)
        if every_row or row.name == HEADER:
            table.add_row(
                str(row.operator), str(row.task), row.name, row.kind, str(row.size_bytes), row.line
            )
    console.print(table)
    for sentence in waits_of(headers):
        console.print(sentence, soft_wrap=True)


def submit_command(
    job: Path, config: JobConfig | None, master: str, *, once: bool, metrics_port: int | None
) -> list[str]:
    """Return the command that has a cluster run a job; its driver stays on this machine."""
    submit = ["spark-submit", "--master", master]
    settings = {} if config is None else config.spark
    iceberg = names_iceberg(job) if config is None else config.sink.iceberg is not None
    missing = [packages(connectors_for(iceberg=iceberg)), settings.get(PACKAGES, "")]
    if any(missing):
        submit += ["--packages", ",".join(filter(None, missing))]
    # When the driver reads the file, its Java runs already and has its memory; and spark-submit has
    # already looked for the files to send to workers.
    for name, value in settings.items():
        if name.startswith(("spark.driver.", "spark.submit.")):
            submit += ["--conf", f"{name}={value}"]
    options = ["--once"] if once else []
    if metrics_port is not None:
        options += ["--metrics-port", str(metrics_port)]
    return [*submit, str(_SUBMITTED), str(job.absolute()), *options]


def _hand_over(command: list[str]) -> None:
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
