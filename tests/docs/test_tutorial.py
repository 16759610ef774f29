"""The tutorial's part on a broker, as its reader runs it."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.pages import blocks, installed, run_there, write_files
from tests.runtime.sidecar import wait_until

PAGE = "docs/learn.md"


def test_the_tutorials_records_come_out_as_it_says(
    kafka: SharedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    write_files(PAGE, tmp_path)
    name = fresh_name("clicks")
    for file in tmp_path.iterdir():
        text = file.read_text("utf-8").replace("pipeline: clicks", f"pipeline: {name}")
        for topic in ("clicks.raw", "clicks.cleaned"):
            text = text.replace(topic, topic.replace("clicks", name))
        file.write_text(text, "utf-8")
    commands = "".join(blocks(PAGE, "sh", "broker")).splitlines()
    send, run, read = map(shlex.split, commands)
    run_there(send, tmp_path)
    with _running(run, tmp_path) as sidecar:
        clients, cleaned = kafka.clients, f"{name}.cleaned"
        # A reader gives up when a topic is missing for 40 s; a busy machine may need more to start.
        wait_until(
            lambda: sidecar.poll() is not None or cleaned in clients.topics(), "its topic", []
        )
        printed = run_there(read, tmp_path)
    assert [printed] == blocks(PAGE, "text")


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    log_file = folder / "sidecar.log"
    with log_file.open("w") as log:
        sidecar = subprocess.Popen(command, cwd=folder, env=installed(), stdout=log, stderr=log)
        try:
            yield sidecar
        finally:
            sidecar.send_signal(signal.SIGTERM)
            code = sidecar.wait()
    assert code == 0, log_file.read_text("utf-8")
