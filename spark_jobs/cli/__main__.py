"""The script that spark-submit runs: the same job, on the session that spark-submit prepared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headrace.contracts.errors import HeadraceError
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.period import period_of
from headrace.spark_jobs.cli.python_job import PYTHON, run_file
from headrace.spark_jobs.cli.run import run_as
from headrace.spark_jobs.observe.metrics import LOOPBACK, Address


def main() -> int:
    """Run the job of the arguments; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--metrics-port", type=int)
    parser.add_argument("--metrics-host", default=LOOPBACK)
    parser.add_argument("--backfill", action="store_true")
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--to")
    arguments = parser.parse_args()
    port = arguments.metrics_port
    metrics_at = None if port is None else Address(port, arguments.metrics_host)
    try:
        period = period_of(arguments.from_, arguments.to) if arguments.backfill else None
        how = How(None, once=arguments.once, backfill=period, metrics_at=metrics_at)
        if arguments.job.suffix == PYTHON:
            run_file(arguments.job, how)
            return 0
        run_as(*load_job(arguments.job), how)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
