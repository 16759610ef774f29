"""The sidecar's image: little in it, nobody's root, and it says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from docker.errors import NotFound
from testcontainers.core.container import DockerContainer

from tests.kafka.carriers import SIDECAR
from tests.kafka.containers import OWNER, owned, sweep

pytestmark = pytest.mark.long("containers", why="it runs the sidecar's image")

TOO_MUCH = ("cc", "gcc", "g++", "make", "pip", "pip3.11")
LOOK = """
import importlib.metadata, json, os, shutil, sys
state = os.environ["HEADRACE_STATE_FOLDER"]
folders = [sys.prefix, "/pipelines", "/usr/bin", state]
writable = [folder for folder in folders if os.access(folder, os.W_OK)]
print(json.dumps({
    "user": os.getuid(),
    "found": [name for name in sys.argv[1:] if shutil.which(name)],
    "writes only its state": writable == [state],
    "libraries": [one.name for one in importlib.metadata.distributions()],
}))
"""


def _run(*words: str, entrypoint: str = "headrace", **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the image's command."""
    container = owned(DockerContainer(SIDECAR), entrypoint=entrypoint)
    container.with_envs(**environment).with_command(list(words))
    with container:
        code = container.wait()
        out, errors = container.get_logs()
        return code, out.decode(), errors.decode()


def test_it_is_nobody_and_can_compile_and_install_nothing() -> None:
    code, out, errors = _run("-c", LOOK, *TOO_MUCH, entrypoint="python")
    assert code == 0, errors
    seen = json.loads(out)
    assert seen["user"] == 10_001
    assert seen["found"] == []
    assert seen["writes only its state"]
    assert {"headrace", "aiokafka", "rocksdict"} <= set(seen["libraries"])
    assert not {"pip", "setuptools", "pytest"} & set(seen["libraries"])


def test_it_carries_the_ready_made_pipelines() -> None:
    code, out, errors = _run("plan", "/pipelines/chain.yaml")
    assert code == 0, errors
    assert "writes clicks.cleaned" in out


def test_containers_of_a_killed_run_are_swept() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as over:
        over.wait()
    container = DockerContainer(SIDECAR).with_kwargs(labels={OWNER: str(over.pid)})
    container.start()
    mine = owned(DockerContainer(SIDECAR))
    with mine:
        sweep()
        mine.reload()
        with pytest.raises(NotFound):
            container.reload()


def test_without_a_broker_it_ends_with_a_sentence() -> None:
    code, _, errors = _run("run", "/pipelines/chain.yaml", HEADRACE_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert code == 3
    assert "127.0.0.1:1" in errors.splitlines()[-1]
