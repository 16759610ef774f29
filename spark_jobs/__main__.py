"""`python -m headrace.spark_jobs [FOLDER]`: prepare this machine, so that Spark starts faster.

It fetches the connectors once; two sessions whose Ivy fills one empty cache at a time would read
each other's half files. It archives the classes that a job loads for Java. With a folder, it copies
the connectors there, for an image.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from headrace.contracts.errors import YourFault
from headrace.spark_jobs import first_run
from headrace.spark_jobs.connectors import fetched
from headrace.spark_jobs.home import (
    archives_of,
    class_archive,
    connectors_of,
    prepare_home,
    prepared_home,
)
from headrace.spark_jobs.java import check_java
from headrace.spark_jobs.session import open_session


def main() -> None:
    """Prepare this machine, and copy the connectors to the folder that the command line names."""
    check_java()
    chosen = os.environ.get("SPARK_HOME")
    home = prepared_home()
    if chosen or not home.is_dir():
        _say("Fetching Spark's connectors, if they are not there.")
        session = open_session("headrace prepare", master="local[1]")
        connectors = fetched(session)
        session.stop()
        if chosen:
            # The user's own Spark stays as it is; Ivy has the missing connectors in its cache now.
            return
        prepare_home(connectors)
    for folder in map(Path, sys.argv[1:]):
        folder.mkdir()
        for jar in connectors_of(home):
            copy(jar, folder)
    archive = class_archive(home)
    if not archive.exists():
        _say("Archiving Spark's classes, for fast starts.")
        _archive_classes(archive)


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _archive_classes(archive: Path) -> None:
    # Two processes may do this at once; each renames a whole archive, and either one is good.
    with TemporaryDirectory(dir=archive.parent, prefix="archiving-") as temporary:
        written = Path(temporary, archive.name)
        command = [sys.executable, "-m", first_run.__name__, str(written), temporary]
        # A session of this process has set the folder without connectors for its children, and Java
        # accepts an archive only for the folder with which it was written.
        own = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        done = subprocess.run(  # noqa: S603
            command, env=own, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and written.exists():
            for old in archives_of(prepared_home()):
                old.unlink(missing_ok=True)
            written.rename(archive)
        else:
            said = done.stderr.strip().splitlines() or ["nothing"]
            _say(f"There is no archive, so each start takes longer; Java says: {said[-1]}")


if __name__ == "__main__":
    try:
        main()
    except YourFault as fault:
        sys.stderr.write(f"{fault}\n")
        sys.exit(fault.exit_code)
