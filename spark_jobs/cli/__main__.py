"""The script that spark-submit runs: the same job, on the session that spark-submit prepared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headrace.contracts.errors import HeadraceError
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.python_job import PYTHON, run_file
from headrace.spark_jobs.cli.run import run_job
from headrace.spark_jobs.observe.metrics import LOOPBACK, Address


def main() -> int:
    """Run the job of the arguments; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--metrics-port", type=int)
    parser.add_argument("--metrics-host", default=LOOPBACK)
    arguments = parser.parse_args()
    port = arguments.metrics_port
    metrics_at = None if port is None else Address(port, arguments.metrics_host)
    try:
        if arguments.job.suffix == PYTHON:
            how = How(None, once=arguments.once, metrics_at=metrics_at)
            run_file(arguments.job, how)
            return 0
        job, config = load_job(arguments.job)
        run_job(job, config, master=None, once=arguments.once, metrics_at=metrics_at)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
