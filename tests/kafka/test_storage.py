"""A data folder that is laid out without Kafka's tool is what that tool would have made."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.jars import kafka_jars
from headrace.services.broker.java import find_java
from headrace.services.broker.kraft import CLUSTER_ID
from headrace.services.broker.storage import lay_out


def _told(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_kafkas_own_tool_takes_the_folder_for_prepared(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.prepare()
    command = [find_java().path, "-cp", f"{kafka_jars()}/*", "kafka.tools.StorageTool", "info"]
    command += ["--config", str(tmp_path / "broker-1" / "server.properties")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"cluster.id={CLUSTER_ID}" in told.stdout
    assert "Found problem" not in told.stdout


def test_each_folder_has_a_name_of_its_own(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"records")
    names = set()
    for number in range(1, 51):
        data = tmp_path / str(number)
        lay_out(data, number, checkpoint)
        told = _told(data)
        assert told["node.id"] == str(number)
        names.add(told["directory.id"])
    assert len(names) == 50
    for name in names:
        assert not name.startswith("-")
        assert len(base64.urlsafe_b64decode(f"{name}==")) == 16


def test_a_folder_that_was_prepared_stays_as_it_is(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"records")
    lay_out(tmp_path / "data", 1, checkpoint)
    told = _told(tmp_path / "data")
    checkpoint.write_bytes(b"others")
    lay_out(tmp_path / "data", 1, checkpoint)
    assert _told(tmp_path / "data") == told
    assert (tmp_path / "data" / "bootstrap.checkpoint").read_bytes() == b"records"
