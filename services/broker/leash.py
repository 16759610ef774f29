"""Becomes the program that its arguments name, and lets it die with its parent (Linux only).

Started as a file of its own: between fork and exec of a process with threads, Python code is not
safe. Elsewhere than on Linux the program outlives a parent that was killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def become(parent: int, command: list[str]) -> None:
    """Never returns: this process is the command from now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that died before the call above sends no signal.
    if os.getppid() == parent:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted here
    sys.exit(1)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
