"""One broker for several processes: the first starts it, the last ends it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from select import select

import pytest

from headrace.services.broker.ports import LOOPBACK
from tests.kafka import sharing
from tests.kafka.sharing import is_there, shared_broker

# Says where the broker is, uses it until its input ends, and says when it is through.
USER = """
import pathlib, sys
from tests.kafka.sharing import shared_broker
with shared_broker(pathlib.Path(sys.argv[1])) as servers:
    print(servers, flush=True)
    sys.stdin.read()
print("through", flush=True)
"""


class _User:
    """Another process of the same run."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout

    def says(self) -> str:
        return self._output.readline().strip()

    def speaks(self, within_s: float) -> bool:
        return select([self._output], [], [], within_s)[0] != []

    def is_done(self) -> None:
        self._input.close()

    def ends(self) -> int:
        with self._output:
            return self.process.wait(60)


def test_the_first_replaces_one_whose_owner_was_killed_and_waits_for_the_last(
    tmp_path: Path,
) -> None:
    killed = _User(tmp_path)
    assert killed.says(), "its broker runs"
    killed.process.kill()
    killed.is_done()
    assert killed.ends() == -signal.SIGKILL
    first = _User(tmp_path)
    servers = first.says()
    # By the folders: ports that the owner had are free again, and another may be given them.
    started_by = {folder.name for folder in tmp_path.glob("by-*")}
    assert started_by == {f"by-{one.process.pid}" for one in (killed, first)}
    with shared_broker(tmp_path) as found:
        assert found == servers
        first.is_done()
        # The owner is through with it, and keeps it for this process.
        assert not first.speaks(within_s=2.0)
        assert is_there(servers)
    assert first.says() == "through"
    assert first.ends() == 0
    assert not is_there(servers)


def test_a_broker_that_counts_none_for_a_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[set[int]] = [set(), set(), {1}]
    monkeypatch.setattr(sharing, "known_brokers", lambda _port, **_: answers.pop(0))
    with socket.create_server((LOOPBACK, 0)) as stalled:
        servers = f"{LOOPBACK}:{stalled.getsockname()[1]}"
        (tmp_path / "address").write_text(servers)
        with shared_broker(tmp_path) as found:
            assert found == servers
    assert answers == []
