"""One broker as a Java process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.contracts.errors import BrokerFailed
from headrace.services.broker import leash
from headrace.services.broker.kraft import CLUSTER_ID, as_file
from headrace.services.broker.metadata import known_brokers

READY_WITHIN_S = 180.0
_STOPPED_WITHIN_S = 30.0
_ASK_AGAIN_S = 0.02
_ANSWER_WITHIN_S = 1.0
_TAIL_LINES = 8
_TAIL_BYTES = 64 << 10


class BrokerProcess:
    """One broker in a folder of its own: `format` once, then `start` and `kill` at will.

    On Linux it dies with the thread that launched it, so that one had better be the main thread.
    """

    def __init__(self, folder: Path, java: Sequence[str], heap_mib: int) -> None:
        self.folder = folder
        self.log = folder / "broker.log"
        self.data = folder / "data"
        self._properties = folder / "server.properties"
        self._java = java
        self._heap = f"-Xmx{heap_mib}m"
        self._number = 0
        self._plain_ports: list[int] = []
        self._others: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def configure(
        self, number: int, plain_ports: list[int], others: list[str], told: Mapping[str, str]
    ) -> None:
        """Say who it is, and what it is told.

        On the plain ports it answers without a password; at other addresses it listens as well.
        """
        self._number, self._plain_ports, self._others = number, plain_ports, others
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(as_file(told))

    def format(self, users: Mapping[str, str]) -> subprocess.Popen[str]:
        """Begin to prepare its storage, with SCRAM passwords for these users."""
        command = [*self._java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        command += [f"--cluster-id={CLUSTER_ID}", f"--config={self._properties}"]
        for name, password in users.items():
            command += ["--add-scram", f"SCRAM-SHA-256=[name={name},password={password}]"]
            command += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        return subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def launch(self) -> None:
        """Start it without waiting for it."""
        command = [*self._java, self._heap, "kafka.Kafka", str(self._properties)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-I", leash.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # One arena of C memory a thread is most of what a broker would take otherwise.
                env=os.environ | {"MALLOC_ARENA_MAX": "2"},
                # Ctrl-C is meant for whoever started it, who then stops it in order.
                start_new_session=True,
            )

    def wait_ready(self, brokers: int) -> None:
        """Return when it answers, and knows itself and as many brokers as these."""
        process = self._running()
        give_up_at = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < give_up_at:
            if self._answers(brokers):
                return
            try:
                process.wait(_ASK_AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
            raise self._ended(process)
        message = f"The embedded broker is silent after {READY_WITHIN_S:.0f} s; {self._says()}"
        raise BrokerFailed(message)

    def start(self) -> None:
        """Start it again, after a kill or a stop; returns when it answers."""
        self.launch()
        self.wait_ready(brokers=1)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, within_s: float = _STOPPED_WITHIN_S) -> bool:
        """Let it close its logs and go, and kill it if it does not; return whether it went."""
        if self._process is None:
            return True
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def pause(self) -> None:
        """Freeze it: its connections stay open, and nobody answers."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # Until a thread of it hears that, all of it goes on.
        os.waitpid(process.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let it go on after a pause."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self) -> None:
        """Return never, unless it ends by itself: that is an error."""
        process = self._running()
        process.wait()
        raise self._ended(process)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._running().pid

    def _answers(self, brokers: int) -> bool:
        # On each port: a broker that could not get one of them answers on the others until it ends.
        for port in self._plain_ports:
            known = known_brokers(port, timeout_s=_ANSWER_WITHIN_S)
            if self._number not in known or len(known) < brokers:
                return False
        return all(map(_is_open, self._others))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            message = "the broker was not launched"
            raise RuntimeError(message)
        return self._process

    def _ended(self, process: subprocess.Popen[bytes]) -> BrokerFailed:
        return BrokerFailed(f"The embedded broker ended ({process.returncode}); {self._says()}")

    def _says(self) -> str:
        """The end of its log, without the places in its source."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        told = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
        return "\n".join([f"the end of {self.log}:", *told[-_TAIL_LINES:]])


def _is_open(address: str) -> bool:
    """Return whether anybody listens there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_WITHIN_S):
            return True
    except OSError:
        return False
