"""`headrace broker`, as a person uses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.contracts.record import Record
from headrace.services.broker.jars import VERSION_VARIABLE, VERSIONS, kafka_version
from headrace.services.broker.ports import free_ports
from tests.kafka.clients import FOREVER, Clients

ANNOUNCED = re.compile(r"Kafka (\S+) listens at (\S+); its data are in (\S+)\. Ctrl-C stops it\.")


def _command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("headrace")), "broker", *words]


@contextmanager
def _running(*words: str) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    process = subprocess.Popen(
        _command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        announced = ANNOUNCED.fullmatch(process.stdout.readline().strip())
        assert announced is not None, process.communicate()
        try:
            yield process, announced
        finally:
            process.kill()


def _child(process: subprocess.Popen[str]) -> int:
    """The broker's own process."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def test_it_runs_until_it_is_told_to_stop_and_keeps_its_data(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    words = ("--port", str(port), "--data", str(tmp_path))
    records = [Record(b"k", b"v", 1, (), "kept", 0, 0)]
    with _running(*words) as (process, announced):
        assert announced.groups() == (kafka_version(), f"127.0.0.1:{port}", str(tmp_path))
        clients = Clients(announced[2])
        clients.make_topic("kept", settings=FOREVER)
        clients.produce("kept", records)
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("stopping\n", "")
        assert process.returncode == 0
    with _running(*words) as (process, announced):
        assert Clients(announced[2]).consume_all("kept") == records
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@pytest.mark.long("clusters", why="it starts a broker again, to look at a folder")
def test_without_a_folder_nothing_is_left() -> None:
    (port,) = free_ports(1)
    with _running("--port", str(port)) as (process, announced):
        folder = Path(announced[3])
        assert folder.is_dir()
        taken = subprocess.run(
            _command("--port", str(port)), capture_output=True, text=True, check=False
        )
        assert taken.returncode == 2
        assert taken.stderr.startswith(f"Cannot listen on 127.0.0.1:{port}: Address already in use")
        process.terminate()
        assert process.wait() == 0
    assert not folder.exists()


def test_the_flag_says_which_kafka_and_a_broker_that_dies_takes_the_command_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag beats the variable; and the command does not outlive what it started."""
    wanted = kafka_version()
    other = next(version for version in VERSIONS if version != wanted)
    monkeypatch.setenv(VERSION_VARIABLE, other)
    (port,) = free_ports(1)
    words = ("--port", str(port), "--data", str(tmp_path), "--kafka", wanted)
    with _running(*words) as (process, announced):
        assert announced[1] == wanted
        broker = _child(process)
        assert f"/kafka-{wanted}-" in Path(f"/proc/{broker}/cmdline").read_text()
        os.kill(broker, signal.SIGKILL)
        _, told = process.communicate()
        assert told.startswith("The embedded broker ended (-9); the end of ")
        assert process.returncode == 3


def test_a_kafka_that_nobody_tried_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, "2.8.0")
    done = subprocess.run(_command(), capture_output=True, text=True, check=False)
    sentence = "HEADRACE_KAFKA_VERSION=2.8.0 is no Kafka that headrace starts; write 4.3.1 or 3.9.1"
    assert (done.returncode, done.stderr) == (2, f"{sentence}\n")
