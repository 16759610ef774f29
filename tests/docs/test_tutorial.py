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
    with _running(run, tmp_path):
        printed = run_there(read, tmp_path)
    assert [printed] == blocks(PAGE, "text")


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[None]:
    log_file = folder / "sidecar.log"
    with log_file.open("w") as log:
        sidecar = subprocess.Popen(command, cwd=folder, env=installed(), stdout=log, stderr=log)
        try:
            yield
        finally:
            sidecar.send_signal(signal.SIGTERM)
            code = sidecar.wait()
    assert code == 0, log_file.read_text("utf-8")
