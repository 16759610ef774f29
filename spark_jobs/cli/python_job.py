"""Run a job that is a Python file: it describes a query and calls `hr.run`."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

import headrace
from headrace.contracts.errors import (
    HeadraceError,
    JobInvalid,
    SchemaRefused,
    SparkNeeded,
    TopologyRefused,
)
from headrace.contracts.raised import clause_of
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.log import log_file, started_into
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.cli.run import run_as
from headrace.spark_jobs.connectors import connectors_for, names_iceberg
from headrace.spark_jobs.jobs.run import Job, prepare
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.public import Sink
from headrace.spark_jobs.session import open_session

PYTHON = ".py"
SERVERS = "127.0.0.1:9092"
_SERVERS_VARIABLE = "HEADRACE_BOOTSTRAP_SERVERS"
_HEADRACE = str(Path(headrace.__path__[0]))
_PYSPARK = f"{os.sep}pyspark{os.sep}"
_PLACED = (JobInvalid, SchemaRefused, TopologyRefused)
"""Errors in the lines of a file; the message names the line."""


_how: ContextVar[How] = ContextVar("how")


def run(
    query: Query,
    *,
    name: str,
    to: Sink,
    servers: str | None = None,
    checkpoint: str | None = None,
    **options: Any,
) -> None:
    """Run a query until it is told to stop; by `headrace spark FILE --once`, over what is there.

    Args:
        query: A stream or a table, joined, filtered, selected, grouped.
        name: Names the query for as long as its checkpoint lives.
        to: Where its rows go, such as `kafka("orders.priced")`.
        servers: Where Kafka is; what HEADRACE_BOOTSTRAP_SERVERS says if not said.
        checkpoint: Where state is kept; the folder `checkpoints/NAME` if not said.
        options: Other options of a job's file, such as `tasks=4` or `late={"topic": "x.late"}`.
    """
    how = _how.get(None) or How()
    job, config = described(
        query,
        name=name,
        to=to,
        servers=servers or os.environ.get(_SERVERS_VARIABLE, SERVERS),
        checkpoint=checkpoint or f"checkpoints/{name}",
        **options,
    )
    how.queries += 1
    if how.only_taken is not None:
        how.only_taken.append(query)
        return
    if how.dry_run:
        prepare(SparkSession.active(), cast("Job", job), config)
        return
    log = how.log
    if log is None and how.master is not None:
        log = log_file(config.name, None)
    run_as(cast("Job", job), config, replace(how, log=log))


def run_file(file: Path, how: How) -> None:
    """Run a Python file, on a session that is opened before its first line."""
    if not file.is_file():
        message = f"there is no file `{file}`"
        raise JobInvalid(message)
    # spark-submit has resolved the connectors, and a dry run needs none.
    needs_none = how.master is None or how.dry_run
    connectors = () if needs_none else connectors_for(iceberg=names_iceberg(file))
    with nullcontext() if how.log is None else started_into(how.log):
        session = open_session(file.stem, master=how.master, connectors=connectors)
    token = _how.set(how)
    try:
        with _beside(file), _placed(file):
            runpy.run_path(str(file), run_name="__main__")
    finally:
        _how.reset(token)
        session.stop()
    if not how.queries:
        message = f'`{file.name}` runs no query; end it with `hr.run(..., name="...", to=...)`'
        raise JobInvalid(message)


def queries_in(file: Path) -> list[Query]:
    """Return the queries that a file would run, without a session."""
    if not file.is_file():
        message = f"there is no file `{file}`"
        raise JobInvalid(message)
    taken: list[Query] = []
    token = _how.set(How(only_taken=taken))
    try:
        with _beside(file), _placed(file):
            runpy.run_path(str(file), run_name="__main__")
    except JobInvalid as error:
        if not _asks_for_session(error.__cause__):
            raise
        place = str(error).partition(": ")[0]
        message = (
            f"{place}: pyspark's columns need a session of Spark; write them as text, such as"
            ' `"quantity * price_cents AS total_cents"`'
        )
        raise SparkNeeded(message) from error
    finally:
        _how.reset(token)
    return taken


def _asks_for_session(error: BaseException | None) -> bool:
    """Return whether pyspark raised an error, while there is no session."""
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    is_theirs = bool(frames) and _PYSPARK in frames[-1].filename
    return is_theirs and SparkSession.getActiveSession() is None


@contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Let the file import modules beside it, as Python itself would."""
    folder = str(file.absolute().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def _placed(file: Path) -> Iterator[None]:
    """Turn errors of the file into a sentence with the line."""
    try:
        yield
    except _PLACED as error:
        message = f"{file.name}{_line(error, file)}: {error}"
        raise type(error)(message) from error
    except HeadraceError:
        raise
    except SyntaxError as error:
        message = f"{file.name}:{error.lineno}: {clause_of(error)}"
        raise JobInvalid(message) from error
    except Exception as error:  # the file is a user's program, and raises what it likes
        if _is_ours(error, file):
            raise
        message = f"{file.name}{_line(error, file)}: {clause_of(error)}"
        raise JobInvalid(message) from error


def _line(error: BaseException, file: Path) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]
    return f":{lines[-1]}" if lines else ""


def _is_ours(error: BaseException, file: Path) -> bool:
    """Return whether code of ours below the file raised it: then it is a bug, shown in full."""
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if str(file) not in names:
        return True
    below = names[len(names) - names[::-1].index(str(file)) :]
    return any(name.startswith(_HEADRACE) for name in below)
