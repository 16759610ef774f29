"""A command that is told to stop before it does anything stops, as the first process as well."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

_STARTED_WITHIN_S = 120.0
_FIRST = ["unshare", "--pid", "--fork"]
_FIRST_OF_A_USER = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
_AS_IF_FIRST = "import os; os.getpid = lambda: 1; from headrace.services.cli import main; main()"
_NO_FIRST = "from headrace.services.cli import main; main()"
_STRUCK = """
import os, signal
pid, os.getpid = os.getpid(), lambda: 1
from aiokafka.conn import AIOKafkaConnection
from headrace.services.cli import main
create = AIOKafkaConnection._create_reader_task
def struck(connection):
    os.kill(pid, signal.SIGTERM)
    return create(connection)
AIOKafkaConnection._create_reader_task = struck
main()
"""
"""The first process, which is told to stop when a connection is half made."""


def first_process() -> list[str]:
    """Return the words that make a command the first process; none if we may not."""
    for words in (_FIRST, _FIRST_OF_A_USER):
        try:
            done = subprocess.run([*words, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return words
    return []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "clicks.yaml"
    written.write_text(
        "pipeline: clicks\nsource: {topic: raw}\noperators:\n"
        "  - reorder: {grace: 5s}\nsink: {topic: cleaned}\n"
    )
    return written


@pytest.mark.parametrize("is_first", [True, False])
def test_a_start_that_waits_for_a_broker_ends_at_once(file: Path, *, is_first: bool) -> None:
    before = first_process() if is_first else []
    code = _AS_IF_FIRST if is_first and not before else _NO_FIRST
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(_STARTED_WITHIN_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        starting = subprocess.Popen(
            [*before, sys.executable, "-c", code, "run", str(file)],
            cwd=file.parent,
            env={**os.environ, "HEADRACE_BOOTSTRAP_SERVERS": address},
            stderr=subprocess.PIPE,
            text=True,
        )
        with silent.accept()[0]:
            os.kill(_child_of(starting.pid) if before else starting.pid, signal.SIGTERM)
            _, said = starting.communicate()
    # The system ends a process that is not the first; a shell calls both the same.
    assert starting.returncode == (128 + signal.SIGTERM if is_first else -signal.SIGTERM)
    assert said == ""


def test_a_start_that_is_told_to_stop_in_the_middle_of_a_step_ends_the_step_first(
    file: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", _STRUCK, "run", str(file)],
            cwd=file.parent,
            env={**os.environ, "HEADRACE_BOOTSTRAP_SERVERS": address},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
