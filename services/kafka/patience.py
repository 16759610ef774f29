"""Asking again where an answer may be another one soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from aiokafka.errors import KafkaError

PATIENCE_S = 30.0
PAUSE_S = 0.05
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def patient(
    ask: Callable[_Arguments, Awaitable[_Answer]],
) -> Callable[_Arguments, Awaitable[_Answer]]:
    """Ask again for as long as what goes wrong may pass: a broker that starts, a leader elected."""

    @wraps(ask)
    async def ask_again(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        give_up_at_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await ask(*arguments, **named)
            except KafkaError as error:
                if not error.retriable or time.monotonic() >= give_up_at_s:
                    raise
            await asyncio.sleep(PAUSE_S)

    return ask_again
