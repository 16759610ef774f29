"""`python -m spark_jobs [FOLDER]`: fetch Spark's connectors, once, before many ask at a time.

Two sessions whose Ivy fills one empty cache would read each other's half files. With a folder, what
was fetched is copied there, for an image.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_jobs.connectors import copy_connectors
from spark_jobs.session import open_session


def main() -> None:
    """Open a session, which fetches what is missing, and close it."""
    sys.stdout.write("Fetching Spark's connectors, if they are not there.\n")
    session = open_session("headrace prepare", master="local[1]")
    for folder in sys.argv[1:]:
        copy_connectors(session, Path(folder))
    session.stop()


if __name__ == "__main__":
    main()
