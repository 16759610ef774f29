"""The archive of classes that `make spark` wrote, as a session's Java takes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from headrace.spark_jobs.home import class_archive, prepared_home

_ARCHIVED_MIN = 5_000
_START = """
from headrace.spark_jobs.session import open_session

open_session("archived", master="local[1]").stop()
"""


@pytest.mark.long("spark", why="it looks at what a start costs, and each session starts alike")
def test_a_session_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    assert class_archive(prepared_home()).exists(), "`make spark` writes it"
    log = tmp_path / "classes.log"
    own = {name: told for name, told in os.environ.items() if name != "SPARK_HOME"}
    own["SPARK_SUBMIT_OPTS"] = f"-Xlog:class+load:file={log}"
    run([sys.executable, "-c", _START], env=own, check=True, capture_output=True)
    archived = log.read_text().count("source: shared objects file (top)")
    # Java ignores an archive that was written for other jars, and starts all the same.
    assert archived >= _ARCHIVED_MIN
