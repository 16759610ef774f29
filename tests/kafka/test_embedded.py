"""The embedded broker: real, stable over restarts, and honest when it cannot start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.contracts.errors import BrokerFailed, PortTaken
from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.process import BrokerProcess
from tests.bench.processes import stat_of
from tests.kafka.clients import FOREVER, Clients, fresh_name
from tests.kafka.fixtures import OwnKafka

RSS_MIB_MAX = 300
DIES_WITHIN_S = 60.0
STOPS_WITHIN_S = 180.0


def _records(topic: str, first: int, count: int, *, value: bytes = b"v") -> list[Record]:
    return [Record(b"%d" % n, value, n, (), topic, 0, n) for n in range(first, first + count)]


def _rss_mib(pid: int) -> int:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) >> 10


def test_a_paused_broker_can_be_stopped(kafka_own: OwnKafka) -> None:
    broker = kafka_own()
    (process,) = broker.brokers
    process.pause()
    # It goes by itself, and is not killed when it has been waited for. Where a start takes a
    # minute, a stop takes its time as well.
    assert process.stop(STOPS_WITHIN_S)
    assert not _alive(process.pid)
    assert _exit_code(process) != -signal.SIGKILL
    process.launch()
    process.kill()
    assert _exit_code(process) == -signal.SIGKILL


def _exit_code(process: BrokerProcess) -> int:
    assert process._process is not None  # noqa: SLF001 (nobody else asks how it ended)
    return process._process.wait()  # noqa: SLF001


@pytest.mark.long("clusters", why="it writes 120 MB to a broker of its own")
def test_memory_stays_small_under_load(kafka_own: OwnKafka) -> None:
    broker = kafka_own()
    clients = Clients(broker.bootstrap_servers)
    topic = clients.make_topic(fresh_name("load"), settings=FOREVER)
    for first in range(0, 60_000, 20_000):
        clients.produce(topic, _records(topic, first, 20_000, value=bytes(2_000)))
    assert len(clients.consume_all(topic)) == 60_000
    assert _rss_mib(broker.brokers[0].pid) < RSS_MIB_MAX


def _listens_at(pid: int) -> set[str]:
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # Some are closed while we look.
        with suppress(FileNotFoundError):
            own.add(link.readlink().name)
    listening = "0A"
    rows = [
        row.split()
        # A system without version 6 has one table alone.
        for table in Path(f"/proc/{pid}/net").glob("tcp*")
        if table.name in {"tcp", "tcp6"}
        for row in table.read_text().splitlines()[1:]
    ]
    return {
        row[1].partition(":")[0]
        for row in rows
        if row[3] == listening and f"socket:[{row[9]}]" in own
    }


def test_it_listens_on_this_machine_only_and_dies_with_whoever_started_it(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from headrace.services.broker.embedded import EmbeddedBroker\n"
        "broker = EmbeddedBroker(pathlib.Path(sys.argv[1]))\n"
        "broker.start()\n"
        "print(broker.brokers[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        addresses = _listens_at(pid)
        owner.send_signal(signal.SIGKILL)
    # 127.0.0.1, as the system writes it, and the same in an address of version 6.
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert addresses != set()
    give_up_at = time.monotonic() + DIES_WITHIN_S
    while _alive(pid):
        assert time.monotonic() < give_up_at, "the broker outlived its owner"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        state = stat_of(pid).state
    except OSError:
        # It may end between the opening of its file and the reading.
        return False
    # A zombie is dead; whoever should have waited for it does not.
    return state != "Z"


def test_a_broker_that_cannot_start_says_why_at_once(tmp_path: Path) -> None:
    users = {"ada": "engine"}
    broker = EmbeddedBroker(tmp_path, properties={"num.io.threads": "many"}, users=users)
    with pytest.raises(BrokerFailed, match=r"(?s)storage could not be prepared.*num\.io\.threads"):
        broker.start()


def test_a_broker_that_ends_while_it_starts_is_noticed_with_its_log(kafka_own: OwnKafka) -> None:
    with pytest.raises(BrokerFailed, match=r"(?s)broker ended \(1\); the end of .*no\.such\.Class"):
        kafka_own({"metric.reporters": "no.such.Class"})


def test_a_broker_is_ready_only_once_it_listens_for_clients_with_passwords(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, ("java",), 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        process.configure(1, [], [address], {})
        assert not process._answers(brokers=1)  # noqa: SLF001 (it would be asked until it does)
        listener.listen()
        assert process._answers(brokers=1)  # noqa: SLF001


@pytest.mark.long("clusters", why="it starts a broker in vain, and another")
def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    first = broker.bootstrap_servers
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(first.rpartition(":")[2])))
        broker.start()
    try:
        assert broker.bootstrap_servers != first
        assert Clients(broker.bootstrap_servers).topics() == set()
    finally:
        broker.stop()


def test_a_port_that_somebody_wants_and_another_has_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Cannot listen on 127.0.0.1:{port}"):
            EmbeddedBroker(tmp_path, port=port)
