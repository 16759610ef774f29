"""A Spark driver in a process of its own, so that it can be killed like one.

Its children (Java, and Python's workers) belong to the same session, and end with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from headrace.services.broker.embedded import LIGHT_JAVA

WITHIN_S = 400.0
QUICK_JAVA = " ".join(LIGHT_JAVA)
"""Options for a Java that lives for less than a minute."""
KILLED = -signal.SIGKILL


class Driver:
    """A process that runs a function, and dies with all that it started."""

    def __init__(
        self, log_file: Path, function: Callable[..., None], *args: object, **options: object
    ) -> None:
        """Start it; what it says goes to the end of the log file."""
        self.log_file = log_file
        log_file.touch()
        self._process = _SPAWN.Process(target=_run, args=(log_file, function, args, options))
        self._process.start()

    @property
    def log(self) -> str:
        """All that it has said."""
        return self.log_file.read_text("utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.exitcode

    def wait(self, within_s: float = WITHIN_S) -> int:
        """Wait until it has ended by itself; its exit code."""
        self._process.join(within_s)
        code = self._process.exitcode
        if code is None:
            self.kill()
            message = f"it still runs after {within_s:g} s:\n{self.log}"
            raise AssertionError(message)
        self.kill()
        return code

    def kill(self) -> None:
        """End it and all that it started, as a power cut would."""
        assert self._process.pid is not None
        kill_session(self._process.pid)
        self._process.join()


def kill_session(session: int) -> None:
    """Kill all processes of a session, at once."""
    for pid in dying_order(_members(session), session, os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def dying_behind(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function, behind which the driver that calls it is killed."""

    def struck(*arguments: object) -> None:
        function(*arguments)
        kill_session(os.getpid())

    return struck


def dying_order(members: Iterable[int], leader: int, caller: int) -> list[int]:
    """The session's leader dies before it sees others dead; the caller dies last.

    Process numbers say nothing about age: they begin again from below.
    """
    return sorted(members, key=lambda pid: (pid == caller, pid != leader))


def _members(session: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(folder.name)) == session:
                    yield int(folder.name)


def _run(
    log_file: Path,
    function: Callable[..., None],
    args: tuple[object, ...],
    options: dict[str, object],
) -> None:
    os.setsid()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    # A killed driver leaves Spark's libraries and half-written blocks behind.
    scratch = mkdtemp(prefix="scratch-", dir=log_file.parent)
    os.environ["TMPDIR"] = scratch
    os.environ["JDK_JAVA_OPTIONS"] = f"-Djava.io.tmpdir={scratch}"
    function(*args, **options)


# A forked driver would take the sockets and threads of the test along.
_SPAWN = multiprocessing.get_context("spawn")
