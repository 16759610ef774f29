"""A question that many partitions share, and that all of them may give up."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiokafka.errors import KafkaError

from headrace.services.kafka.takeovers import Takeovers


def test_a_failure_is_no_error_in_the_log_if_all_that_asked_have_been_cancelled() -> None:
    said: list[dict[str, Any]] = []

    async def live() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        takeovers = Takeovers({}, [], timeout_ms=1_000)
        answered = asyncio.Event()

        async def fail(_: str) -> None:
            await answered.wait()
            raise KafkaError

        asking = asyncio.create_task(takeovers.once("end", "id", fail))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        (failing,) = asyncio.all_tasks() - {asyncio.current_task()}
        answered.set()
        await asyncio.wait([failing])
        del failing
        gc.collect()

    asyncio.run(live())
    assert said == []
