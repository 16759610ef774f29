"""The watch beside a worker: its health, its pages over HTTP, and the clean-up behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from aiokafka.errors import KafkaError

from headrace.contracts.errors import WorkerStalled
from headrace.services.observe.health import Watchdog
from headrace.services.observe.http import serve
from headrace.services.observe.logs import logger
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.pages import pages
from headrace.services.runtime.machine.garbage import keep_collecting
from headrace.services.runtime.unawaited import report_failure
from headrace.services.runtime.worker import Worker

_LOOK_EVERY_S = 2.0
_log = logger(__name__)


@asynccontextmanager
async def watched(worker: Worker) -> AsyncIterator[None]:
    """Answer for a worker, and end it if it is stuck, while this is open."""
    settings = worker.settings
    metrics = worker.work.metrics = Metrics(worker.snapshot)
    watchdog = Watchdog(worker.snapshot, settings.stall_timeout_ms / 1000)
    server = None
    if settings.http_port is not None:
        answers = pages(worker.snapshot, metrics, watchdog)
        server = await serve(settings.http_host, settings.http_port, answers)
        _log.info("answering /live, /ready and /metrics", host=settings.http_host, port=server.port)
    beside = [
        asyncio.create_task(one)
        for one in (
            _look(worker, watchdog),
            worker.work.purges.keep_purging(),
            worker.work.limits.keep_asking(worker.work.restorer.ask),
            keep_collecting(),
        )
    ]
    for one in beside:
        # Otherwise one of them could die unnoticed.
        one.add_done_callback(partial(report_failure, worker.fail))
    try:
        yield
    finally:
        for one in beside:
            one.cancel()
        if server is not None:
            await server.close()


async def _look(worker: Worker, watchdog: Watchdog) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        # The watchdog looks often, so both are asked at once.
        await asyncio.gather(
            _ask(worker.survey, "the broker did not say how far topics are"),
            _ask(worker.check_topics, "the broker did not say which topics there are"),
        )
        stalled = watchdog.look()
        if stalled:
            sentences = "; ".join(stall.sentence for stall in stalled)
            worker.fail(WorkerStalled(f"{sentences}; this instance stops, so start it again"))


async def _ask(ask: Callable[[], Awaitable[None]], unanswered: str) -> None:
    """Ask brokers, and go on where they do not answer."""
    try:
        async with asyncio.timeout(_LOOK_EVERY_S):
            await ask()
    except (KafkaError, TimeoutError) as problem:
        _log.warning(unanswered, why=repr(problem))
