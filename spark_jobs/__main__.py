"""`python -m spark_jobs`: fetch Spark's connectors, once, before many ask at a time.

Two sessions whose Ivy fills one empty cache would read each other's half files.
"""

from __future__ import annotations

import sys

from spark_jobs.session import open_session


def main() -> None:
    """Open a session, which fetches what is missing, and close it."""
    sys.stdout.write("Fetching Spark's connectors, if they are not there.\n")
    open_session("headrace prepare", master="local[1]").stop()


if __name__ == "__main__":
    main()
