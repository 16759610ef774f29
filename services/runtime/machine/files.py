"""How many files this process may have open: as many as the machine lets it."""

from __future__ import annotations

import resource
from contextlib import suppress

from headrace.services.state.rocks import FILES_OF_A_DATABASE

_FILES_OF_A_WORKER = 100
_CONNECTIONS_OF_A_TASK = 4


def allow_files() -> int:
    """Raise the limit that a process may raise itself; how many files it may open now."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no bound, and knows one.
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return allowed


def too_few_files(allowed: int, partitions: int) -> str | None:
    """Return a warning for an instance that could not run so many partitions alone, or None."""
    wanted = _FILES_OF_A_WORKER + partitions * (FILES_OF_A_DATABASE + _CONNECTIONS_OF_A_TASK)
    if allowed >= wanted or allowed == resource.RLIM_INFINITY:
        return None
    return (
        f"this process may open {allowed} files, and all {partitions} partitions would take some"
        f" {wanted} if it were the only instance; raise its limit (`ulimit -n`, LimitNOFILE= of"
        " systemd, --ulimit nofile= of Docker)"
    )
