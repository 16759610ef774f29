"""Start, run until told to stop, stop within a bound; the error that ended it goes up."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiokafka.errors import KafkaError

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.reach import reachable
from headrace.services.kafka.refusals import ending_of
from headrace.services.kafka.topics import PreparedTopics, prepare_topics
from headrace.services.observe.logs import configure
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.app import SidecarApp, make_app, start_app
from headrace.services.runtime.input.fetched import install_records
from headrace.services.runtime.machine.files import allow_files, too_few_files
from headrace.services.runtime.machine.folder import held
from headrace.services.runtime.machine.garbage import collect_by_clock_alone
from headrace.services.runtime.watch import watched
from headrace.services.runtime.worker import Worker
from headrace.services.settings import Settings

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_S = 1.0
logger = logger_of(__name__)


def stops_within_s(settings: Settings) -> float:
    """How long a stop takes at most: whoever kills a process that does not stop waits longer."""
    return _stop_s(settings) + _LAST_S


def _stop_s(settings: Settings) -> float:
    """How long the parts of a worker may take: its tasks one half, and all others the other."""
    return 2 * settings.shutdown_timeout_ms / 1000


def run_pipeline(spec: PipelineSpec, settings: Settings) -> None:
    """Run until a signal says stop; raises what ended it otherwise."""
    configure(settings.log_format, settings.log_level, sys.stderr)
    collect_by_clock_alone()
    install_records()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with held(settings.state_folder / spec.pipeline):
            _end_between_steps(loop)
            loop.run_until_complete(_run(spec, settings))
    finally:
        _let_go(loop)


def _end_between_steps(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop call the handler of a signal that ends this process, if it has one.

    Python calls it in the middle of any line, and a connection may then be half made.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if callable(handler):
        loop.add_signal_handler(signal.SIGTERM, handler, signal.SIGTERM, None)


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    """End what is left; who waits for a broker that is silent is left behind.

    `asyncio.run` would wait with them, for as long as a request may take.
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.set_exception_handler(lambda _loop, _context: None)
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=_LAST_S))


async def _run(spec: PipelineSpec, settings: Settings) -> None:
    allowed = allow_files()
    await reachable(settings)
    prepared = await _prepare(spec, settings)
    partitions = prepared.partitions
    warning = too_few_files(allowed, sum(partitions[hop.topic] for hop in spec.hops()))
    if warning is not None:
        logger.warning(warning)
    worker = Worker(spec, settings, partitions, Limits(prepared.takes_bytes))
    app = make_app(worker)
    with _told_to_stop() as stop:
        logger.info("starting", pipeline=spec.pipeline, guarantee=settings.guarantee)
        failed = asyncio.ensure_future(worker.failed())
        crashed = asyncio.ensure_future(app.wait_until_stopped())
        try:
            async with watched(worker):
                await _start(app, settings)
                await asyncio.wait([stop, failed, crashed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            logger.info("stopping", pipeline=spec.pipeline)
            with suppress(TimeoutError):
                await asyncio.wait_for(app.stop(), _stop_s(settings))
            crashed.cancel()
        if not failed.cancel():
            failed.result()
        if app.crash_reason is not None:
            raise ending_of(app.crash_reason, settings)
        logger.info("stopped", pipeline=spec.pipeline)


async def _start(app: SidecarApp, settings: Settings) -> None:
    """Start, or say that the brokers which answered a moment ago do no more."""
    try:
        await start_app(app)
    except KafkaError as problem:
        raise ending_of(problem, settings) from problem


async def _prepare(spec: PipelineSpec, settings: Settings) -> PreparedTopics:
    """Have every topic there, as it must be."""
    prepared = await prepare_topics(spec, settings)
    for name in prepared.made:
        logger.info("topic made", topic=name, partitions=prepared.partitions.get(name))
    for sentence in (*spec.warnings(), *prepared.warnings):
        logger.warning(sentence)
    return prepared


@contextmanager
def _told_to_stop() -> Iterator[asyncio.Future[None]]:
    """A future that is done when a signal asks us to stop."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def told() -> None:
        if not stop.done():
            stop.set_result(None)

    for number in _SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
