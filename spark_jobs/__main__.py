"""`python -m headrace.spark_jobs [--iceberg] [FOLDER]`: prepare this machine for fast starts.

It fetches the connectors once; two sessions whose Ivy fills one empty cache at a time would read
each other's half files. With `--iceberg`, it fetches that library too. It archives the classes that
a job loads for Java. With a folder, it copies what it has fetched there, for an image.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from headrace.contracts.errors import SettingsInvalid, YourFault
from headrace.spark_jobs import first_run
from headrace.spark_jobs.connectors import ICEBERG, connectors_for, fetched, jar_of
from headrace.spark_jobs.home import (
    archives_of,
    class_archive,
    connectors_of,
    prepare_home,
    prepared_home,
)
from headrace.spark_jobs.java import check_java
from headrace.spark_jobs.session import open_session

_ICEBERG = "--iceberg"


def main() -> None:
    """Prepare this machine, and copy the connectors to the folder that the command line names."""
    check_java()
    chosen = os.environ.get("SPARK_HOME")
    iceberg, folders = _ICEBERG in sys.argv, [one for one in sys.argv[1:] if one != _ICEBERG]
    home = prepared_home()
    more = {}
    if chosen or iceberg or not home.is_dir():
        _say("Fetching Spark's connectors, if they are not there.")
        connectors = connectors_for(iceberg=iceberg)
        session = open_session("headrace prepare", master="local[1]", connectors=connectors)
        jars = fetched(session)
        session.stop()
        if chosen:
            # The user's own Spark stays as it is; Ivy has the missing connectors in its cache now.
            return
        more = {name: jars.pop(name) for name in [jar_of(ICEBERG)] if name in jars}
        prepare_home(jars)
    for folder in map(Path, folders):
        _copy_to(folder, {jar.name: jar for jar in connectors_of(home)} | more)
    archive = class_archive(home)
    if not archive.exists():
        _say("Archiving Spark's classes, for fast starts.")
        _archive_classes(archive)


def _copy_to(folder: Path, jars: Mapping[str, Path]) -> None:
    try:
        folder.mkdir()
        for name, jar in jars.items():
            copy(jar, folder / name)
    except OSError as error:
        message = (
            f"the connectors cannot be copied to a new folder `{folder}` ({error.strerror}); name"
            " another one"
        )
        raise SettingsInvalid(message) from error


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
