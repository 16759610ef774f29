"""Tasks that nobody awaits: whoever answers for one is told what it died of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def report_failure(fail: Callable[[BaseException], None], ended: asyncio.Task[None]) -> None:
    """Call `fail` with what a task died of; a task that was cancelled or is done needs nobody."""
    if not ended.cancelled() and (problem := ended.exception()) is not None:
        fail(problem)
