"""A cluster's master on another address, and a checkpoint that its machines would not share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import create_connection
from subprocess import Popen, run

import pyspark
import pytest

from tests.pages import installed, write_files
from tests.runtime.conftest import free_port
from tests.runtime.sidecar import wait_until

pytestmark = pytest.mark.long("spark", why="it needs a cluster of processes")

__all__ = ["free_port"]


@pytest.fixture
def master(free_port: int, tmp_path: Path) -> Iterator[str]:
    """The master of a cluster without workers."""
    program = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    command = [program, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    ports = ["--port", str(free_port), "--webui-port", "0"]
    with (tmp_path / "master.log").open("wb") as log:
        loopback = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        with Popen([*command, *ports], stdout=log, stderr=log, env=loopback) as process:
            try:
                wait_until(lambda: _listens(free_port), "the master", [])
                yield f"spark://127.0.0.1:{free_port}"
            finally:
                process.kill()


def _listens(port: int) -> bool:
    try:
        with closing(create_connection(("127.0.0.1", port), 1)):
            return True
    except OSError:
        return False


def test_a_checkpoint_on_this_machine_is_refused(master: str, tmp_path: Path) -> None:
    write_files("spark_jobs/OWN_JOBS.md", tmp_path)
    command = ["headrace", "spark", "stock.yaml", "--once", "--master", master]
    environment = {**installed(), "SPARK_LOCAL_IP": "127.0.0.1"}
    # A user may call headrace by its path, without its Python on the path.
    environment["PATH"] = os.defpath
    command[0] = str(Path(sys.executable).with_name("headrace"))
    done = run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    # The output of Python under spark-submit stands beside spark-submit's own.
    (said,) = [line for line in done.stdout.splitlines() if "is a folder of this machine" in line]
    assert said.startswith("`./checkpoints/stock` is a folder of this machine, and tasks run on")
