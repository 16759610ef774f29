"""Sidecars as processes of their own, to be killed, frozen and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from headrace.contracts.errors import InstanceFenced, KafkaUnreachable
from headrace.services.broker import leash

_ROOT = Path(__file__).parents[2]
_STOPPED_WITHIN_S = 40.0
_TAIL_BYTES = 2_000
_GAVE_UP = (KafkaUnreachable.exit_code, InstanceFenced.exit_code)
"""A broker that is gone for long, or that took away transactions again and again."""
_STARTING, _ASSIGNED, _RUNNING, _RELEASED = (
    "starting", "partitions assigned", "running", "partitions released",
)  # fmt: skip
"""The service's message by which the kill test strikes."""


class Worker:
    """One instance of `headrace run`, with a state folder and a log of its own."""

    def __init__(
        self, name: str, folder: Path, pipeline: Path, settings: Mapping[str, str]
    ) -> None:
        """Make it; `start` runs it. Start it from the main thread, whose end is its end."""
        self.name = name
        self.state_folder = folder / name / "state"
        self.log = folder / name / "log"
        self.unexpected: list[str] = []
        """How it ended when nobody had asked for it."""
        self.program: tuple[str, ...] = ("headrace.services.cli",)
        """The module that it runs, and what this one wants to know before the command."""
        self.gave_up: list[str] = []
        """How it ended with a sentence, where only a new start can help."""
        self._pipeline = pipeline
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._life_begins_at = 0
        self.log.parent.mkdir(parents=True)
        self.log.touch()

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            return
        self._life_begins_at = self.log.stat().st_size
        command = [sys.executable, "-m", *self.program, "run", str(self._pipeline)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", leash.__file__, str(os.getpid()), *command],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        ours = {"HEADRACE_STATE_FOLDER": str(self.state_folder), **self._settings}
        theirs = {name: text for name, text in os.environ.items() if "HEADRACE_" not in name}
        return {**theirs, **ours}

    @property
    def pid(self) -> int | None:
        """Its process, None where none runs."""
        return None if self._process is None else self._process.pid

    def kill(self) -> bool:
        """SIGKILL; whether there was anybody to kill."""
        self.look()
        if self._process is None:
            return False
        self._process.kill()
        self._process.wait()
        self._process = None
        return True

    def freeze(self) -> None:
        """SIGSTOP: it holds its connections, and does not know that time passes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM; it has to commit and end with 0, within a bound."""
        self.look()
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.unexpected.append(
                f"{self.name} did not end {_STOPPED_WITHIN_S:.0f} s after SIGTERM"
            )
        else:
            # Before it can hear signals, it has nothing that it could leave in disorder.
            if code != 0 and not (code == -signal.SIGTERM and self._latest(_STARTING) < 0):
                self.unexpected.append(f"{self.name} ended with {code} after SIGTERM")
        self._process = None

    def look(self) -> None:
        """Take note if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            noted = self.gave_up if code in _GAVE_UP else self.unexpected
            noted.append(f"{self.name} ended with {code} by itself: {self.last_line()}")
            self._process = None

    def wipe(self) -> None:
        """Its disk is lost."""
        shutil.rmtree(self.state_folder, ignore_errors=True)

    def has_partitions(self) -> bool:
        """Whether it was given partitions since the last were taken back."""
        return self._latest(_ASSIGNED) > self._latest(_RELEASED)

    def works(self) -> bool:
        """Whether a partition runs of those that it was given last."""
        return self._latest(_RUNNING) > max(self._latest(_ASSIGNED), self._latest(_RELEASED))

    def partitions(self) -> list[str]:
        """The partitions that it was given last."""
        said = self._said_in_this_life()
        at = said.rfind(_event_text(_ASSIGNED))
        start, end = said.rfind(b"\n", 0, at) + 1, said.find(b"\n", at)
        if at < 0 or end < 0:
            return []
        partitions: list[str] = json.loads(said[start:end])["partitions"]
        return partitions

    def running(self) -> set[str]:
        """The partitions that run, by all that it has said in this life; none if it has ended."""
        running: set[str] = set()
        for line in self._said_in_this_life().decode(errors="replace").splitlines():
            event = _event(line)
            if event == _RUNNING:
                said = json.loads(line)
                running.add(f"{said['topic']}/{said['partition']}")
            elif event == _RELEASED:
                running -= set(json.loads(line)["partitions"])
        return running if self.pid is not None else set()

    def _latest(self, event: str) -> int:
        """Where in its log it last said this, in this life; -1 if it never did."""
        return self._said_in_this_life().rfind(_event_text(event))

    def _said_in_this_life(self) -> bytes:
        with self.log.open("rb") as log:
            log.seek(self._life_begins_at)
            return log.read()

    def said(self) -> Counter[str]:
        """How often it said what, over all its lives."""
        lines = self.log.read_text(errors="replace").splitlines()
        return Counter(event for line in lines if (event := _event(line)))

    def last_line(self) -> str:
        """The last line of its log."""
        end = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        lines = end.strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _signal(self, number: signal.Signals) -> None:
        self.look()
        if self._process is not None:
            self._process.send_signal(number)


def _event_text(event: str) -> bytes:
    return f'"event": "{event}"'.encode()


def _event(line: str) -> str | None:
    """The event of a line of the log, None where it is no event."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    event: str | None = fields.get("event") if isinstance(fields, dict) else None
    return event
