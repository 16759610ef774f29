"""`headrace run` as processes of their own: forked, since importing Faust costs over a second.

A forked process has imported all and done nothing; from the command's arguments on it is the
command itself, with its own threads, signals and exit code.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.services.cli import main
from headrace.services.variables import PREFIX

_ENDS_WITHIN_S = 180.0
_SHOWN_CHARACTERS_MAX = 400
_forked = multiprocessing.get_context("forkserver")
_forked.set_forkserver_preload(
    [
        "headrace.services.cli.run",
        "tests.conformance.functions",
        "tests.conformance.sidecar.offsets",
    ]
)


class Sidecar:
    """One instance of a pipeline."""

    def __init__(
        self, file: Path, log: Path, environment: Mapping[str, str], *, believes_offsets: bool
    ) -> None:
        """Start it, with what it says in `log`."""
        self._log = log
        arguments = (str(file), str(log), dict(environment), believes_offsets)
        # A daemon does not outlive us.
        self._process = _forked.Process(target=_run, args=arguments, daemon=True)
        self._process.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero it is the signal that killed it."""
        return self._process.exitcode

    def terminate(self) -> None:
        """Ask it to stop."""
        self._process.terminate()

    async def ended(self) -> int | None:
        """Wait for its exit code; None for one that does not end, and is killed.

        Asked in the thread that starts processes: `multiprocessing` looks after all of them there,
        and reads each exit code once.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                await ended.wait()
        except TimeoutError:
            self._process.kill()
            return None
        finally:
            loop.remove_reader(self._process.sentinel)
        return self.exit_code

    def last_words(self) -> str:
        """The last line that it wrote, shortened."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return lines[-1][:_SHOWN_CHARACTERS_MAX] if lines else "it said nothing"


def _run(file: str, log: str, environment: Mapping[str, str], believes_offsets: bool) -> None:  # noqa: FBT001
    """Run in the forked process."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(written, stream)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ.update(environment)
    if believes_offsets:
        # Imported here: whoever looks at results does not need Faust.
        from tests.conformance.sidecar.offsets import believe_offsets  # noqa: PLC0415

        believe_offsets()
    sys.argv = ["headrace", "run", file]
    main()
