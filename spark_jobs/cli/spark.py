"""`headrace spark`: run a job, or hand it to a cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Column, Table

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.servers import PORT_MAX
from headrace.spark_jobs.cli.how import LOCAL, DeployMode, How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.log import log_file, started_into
from headrace.spark_jobs.cli.period import period_of
from headrace.spark_jobs.cli.python_job import PYTHON, run_file
from headrace.spark_jobs.cli.run import run_as
from headrace.spark_jobs.cli.submit import check_deploy_mode, hand_over, submit_command
from headrace.spark_jobs.jobs.backfill import at_once_of
from headrace.spark_jobs.jobs.config import TASKS_MAX
from headrace.spark_jobs.jobs.move import move as move_state
from headrace.spark_jobs.observe.metrics import LOOPBACK, Address
from headrace.spark_jobs.observe.state import StateRow, read_state, waits_of
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.versioned.state import HEADER

_MASTER = re.compile(r"local(-cluster)?(\[.*\])?$|spark://|yarn$|k8s://")

app = App(name="spark", help="Run a Spark job, or look into its checkpoint.")


@app.default
def run(  # noqa: PLR0913 - each by name, and each may be left out
    job: Path,
    *,
    master: str = LOCAL,
    deploy_mode: DeployMode = DeployMode.CLIENT,
    once: bool = False,
    metrics_port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=PORT_MAX))] = None,
    metrics_host: str = LOOPBACK,
    log: Path | None = None,
    dry_run: Annotated[bool, Parameter(name="--print")] = False,
) -> None:
    """Run a Spark job on this machine, or on the cluster that a master names.

    Args:
        job: The job's YAML file, or a file of Python that calls `headrace.run`.
        master: local[N], or a cluster's address, to which spark-submit hands the job.
        deploy_mode: With a cluster, whether this machine runs the driver, or one of the cluster's.
        once: End when everything that is there now is read.
        metrics_port: Serve Prometheus' metrics on this port of the driver's machine.
        metrics_host: The address at which; by default, no other machine can ask.
        log: The file for Spark's own log, on this machine; by default one whose name is printed.
        dry_run: Print the call of spark-submit, and run nothing.
    """
    _refuse_no_master(master)
    if metrics_port is None and metrics_host != LOOPBACK:
        message = (
            f"`--metrics-host {metrics_host}` does nothing without a port; add one, such as"
            " `--metrics-port 9404`"
        )
        raise SettingsInvalid(message)
    at = None if metrics_port is None else Address(metrics_port, metrics_host)
    how = How(master, deploy_mode, once, metrics_at=at, log=log, dry_run=dry_run)
    _run(job, how)


def _run(job: Path, how: How) -> None:
    """Run a job here, or hand it to a cluster, or print how."""
    check_deploy_mode(how)
    if job.suffix == PYTHON:
        _run_python(job, how)
        return
    module, config = load_job(job)
    if how.backfill is not None:
        # A job that has none is refused before Java starts.
        at_once_of(module, config)
    command = submit_command(job, config, how)
    if how.dry_run:
        _print(command)
    elif how.is_here:
        run_as(module, config, replace(how, log=log_file(config.name, how.log)))
    else:
        hand_over(command)


def _run_python(job: Path, how: How) -> None:
    """Run a job's file, or only check it, or hand it to a cluster."""
    command = submit_command(job, None, how)
    if not how.is_here and not how.dry_run:
        hand_over(command)
        return
    file = log_file(job.stem, how.log)
    run_file(job, replace(how, master=how.master if how.is_here else LOCAL, log=file))
    if how.dry_run:
        _print(command)


def _print(command: list[str]) -> None:
    Console(highlight=False).print(shlex.join(command), soft_wrap=True)


@app.command
def backfill(  # noqa: PLR0913 - each by name, and each may be left out
    job: Path,
    *,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    to: str | None = None,
    master: str = LOCAL,
    deploy_mode: DeployMode = DeployMode.CLIENT,
    log: Path | None = None,
    dry_run: Annotated[bool, Parameter(name="--print")] = False,
) -> None:
    """Join the past of a stream at once, and leave a checkpoint from which the job goes on.

    Args:
        job: The file of a job that joins a stream as of a table, into a table. It has not begun.
        from_: Leave out records before this time, such as 2026-11-01; without it, none.
        to: Where the job goes on, such as 2026-11-01T12:30Z; without it, as far as both topics are.
        master: local[N], or a cluster's address, to which spark-submit hands the job.
        deploy_mode: With a cluster, whether this machine runs the driver, or one of the cluster's.
        log: The file for Spark's own log, on this machine; by default one whose name is printed.
        dry_run: Print the call of spark-submit, and run nothing.
    """
    _refuse_no_master(master)
    period = period_of(from_, to)
    _run(job, How(master, deploy_mode, backfill=period, log=log, dry_run=dry_run))


def _refuse_no_master(master: str) -> None:
    if not _MASTER.match(master):
        message = (
            f"`--master {master}` names no cluster; write local[N], spark://HOST:PORT, yarn or"
            " k8s://HOST:PORT"
        )
        raise SettingsInvalid(message)


@app.command
def state(checkpoint: str, *, rows: bool = False) -> None:
    """Show what a checkpoint remembers; the query may run meanwhile.

    Args:
        checkpoint: The folder that the job's file names.
        rows: Show every row, and not each task's header alone.
    """
    with _session("state", "local[1]") as session:
        print_state(read_state(session, checkpoint), Console(highlight=False), every_row=rows)


@app.command
def move(
    old: str,
    new: str,
    *,
    tasks: Annotated[int, Parameter(validator=Number(gte=1, lte=TASKS_MAX))],
) -> None:
    """Move the state of a checkpoint into another number of tasks; the job must not run.

    Args:
        old: The folder that the job's file names now. No job goes on from it afterwards.
        new: A folder that does not exist yet, and that the job's file must name from then on.
        tasks: How many tasks there are in the new one, which the job's file must say as well.
    """
    with _session("move", "local[2]", new) as session:
        move_state(session, old, new, tasks)
    Console(highlight=False).print(
        f"{new} has the state in {tasks} tasks; write `checkpoint: {new}` and `tasks: {tasks}` into"
        " the job, and start it",
        soft_wrap=True,
    )


@contextmanager
def _session(command: str, master: str, checkpoint: str = "") -> Iterator[SparkSession]:
    """Open a session for a command; Spark's own log goes to a file."""
    file = log_file(command, None)
    with started_into(file):
        name = f"headrace spark {command}"
        session = open_session(name, master=master, connectors=(), checkpoint=checkpoint)
    try:
        yield session
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
