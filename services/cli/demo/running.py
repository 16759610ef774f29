"""The demo's processes: a broker, sidecars and Spark jobs; none outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from headrace.contracts.errors import DemoFailed
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.prepare import prepare
from headrace.services.settings import Settings, read_settings
from headrace.services.variables import FILE_SUFFIX, variable

_WITHIN_S = 300.0
_JOB_WITHIN_S = 600.0
"""The first one may fetch Spark's connectors."""
_LOOK_EVERY_S = 0.1
_CORES = "local[2]"


def forget_settings() -> None:
    """Take settings out of the environment: those of an installation name its brokers and ports."""
    for field in Settings.model_fields:
        for name in (variable(field), variable(field) + FILE_SUFFIX):
            os.environ.pop(name, None)


@contextmanager
def broker(folder: Path, console: Console) -> Iterator[Settings]:
    """A real Kafka, and the settings by which it is reached."""
    with console.status("starting a Kafka broker") as status:
        prepare(lambda step: status.update(f"preparing Kafka, once: {step}"))
        status.update("starting a Kafka broker")
        embedded = EmbeddedBroker(folder / "broker")
        embedded.start()
    try:
        yield read_settings(
            bootstrap_servers=embedded.bootstrap_servers, state_folder=folder / "state"
        )
    finally:
        embedded.stop()


@contextmanager
def sidecar(pipeline: Path, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace run` in a process of its own."""
    environment = {
        **os.environ,
        "HEADRACE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "HEADRACE_STATE_FOLDER": str(settings.state_folder),
        "HEADRACE_DECISIONS": "true",
        "HEADRACE_LOG_LEVEL": "error",
        # A session of the shortest kind: who was killed is missed sooner.
        "HEADRACE_SESSION_TIMEOUT": "6s",
    }
    command = [sys.executable, "-m", "headrace.services.cli", "run", str(pipeline)]
    process = subprocess.Popen(command, env=environment)  # noqa: S603 - our own command
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_WITHIN_S)


def wait_until(is_so: Callable[[], bool], *sidecars: subprocess.Popen[bytes]) -> None:
    """Wait until sidecars have done something."""
    give_up_at_s = time.monotonic() + _WITHIN_S
    while not is_so():
        ended = [one.returncode for one in sidecars if one.poll() is not None]
        if ended:
            message = f"a sidecar ended by itself, with exit code {ended[0]}; see above"
            raise DemoFailed(message)
        if time.monotonic() > give_up_at_s:
            message = f"a sidecar did not come to an end within {_WITHIN_S:.0f} s; try again"
            raise DemoFailed(message)
        time.sleep(_LOOK_EVERY_S)


def has_spark() -> bool:
    """Whether Spark is installed beside us."""
    return find_spec("pyspark") is not None


def run_jobs(files: Sequence[Path]) -> None:
    """Run `headrace spark` for each file, until it has read everything; the first one goes alone.

    It fetches the connectors that the others need too.
    """
    _wait_for([_job(files[0])])
    _wait_for([_job(file) for file in files[1:]])


def _job(file: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = file.with_suffix(".log")
    words = ["spark", str(file), "--once", "--master", _CORES]
    command = [sys.executable, "-m", "headrace.services.cli", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 - our own
    return process, log


def _wait_for(jobs: Sequence[tuple[subprocess.Popen[bytes], Path]]) -> None:
    try:
        for process, log in jobs:
            if process.wait(_JOB_WITHIN_S):
                said = log.read_text("utf-8", "replace").strip().splitlines()
                message = f"the job {log.stem} failed: {said[-1] if said else 'it said nothing'}"
                raise DemoFailed(message)
    except subprocess.TimeoutExpired as error:
        message = f"a Spark job did not come to an end within {_JOB_WITHIN_S:.0f} s; try again"
        raise DemoFailed(message) from error
    finally:
        for process, _ in jobs:
            process.kill()
