"""One broker for several processes: the first starts it, the last ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from select import select

from services.broker.metadata import known_brokers
from tests.kafka.sharing import shared_broker

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

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def speaks(self, within_s: float) -> bool:
        return select([self.process.stdout], [], [], within_s)[0] != []

    def is_done(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ends(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            assert self.process.wait(60) == 0


def _is_there(servers: str) -> bool:
    return known_brokers(int(servers.rpartition(":")[2]), timeout_s=5.0) != set()


def test_the_first_starts_it_and_waits_for_the_last(tmp_path: Path) -> None:
    first = _User(tmp_path)
    servers = first.says()
    with shared_broker(tmp_path) as found:
        assert found == servers
        first.is_done()
        # The owner is through with it, and keeps it for this process.
        assert not first.speaks(within_s=2.0)
        assert _is_there(servers)
    assert first.says() == "through"
    first.ends()
    assert not _is_there(servers)


def test_a_broker_whose_owner_was_killed_is_replaced(tmp_path: Path) -> None:
    owner = _User(tmp_path)
    servers = owner.says()
    owner.process.kill()
    owner.is_done()
    assert owner.says() == ""
    owner.process.wait(60)
    assert owner.process.stdout is not None
    owner.process.stdout.close()
    with shared_broker(tmp_path) as found:
        assert found != servers
        assert _is_there(found)
