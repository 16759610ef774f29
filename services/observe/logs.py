"""Logs: one event, one sentence in plain words, and fields beside it.

Everything goes the same way: our events, and what libraries log by Python's logging. Libraries are
kept at warnings by the levels of their loggers and not by a handler that throws away what was
built: stock Faust leaves them at DEBUG, and a tenth of its time is spent on log records that
nobody sees. A program that starts Faust by its own worker must keep it from setting up logging
again (`override_logging=False, redirect_stdouts=False`).

No log holds contents of a record; see `redaction`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from headrace.services.observe.nexts import what_next
from headrace.services.observe.redaction import plain, plain_fields, traceback_text
from headrace.services.observe.repeats import Repeats

Format = Literal["auto", "text", "json"]
Level = Literal["debug", "info", "warning", "error"]
LIBRARIES = ("aiokafka", "asyncio", "faust", "mode", "rocksdict")
_OURS = "headrace"
_FIRST_FIELDS = ("time", "level", "logger", "event")
_OWN_FIELDS = (*_FIRST_FIELDS, "exception", "stack", "exc_info", "_record", "_from_structlog")


def logger(name: str) -> FilteringBoundLogger:
    """The logger of a module; call it with `__name__`."""
    return cast("FilteringBoundLogger", structlog.get_logger(name))


def configure(log_format: Format, level: Level, stream: TextIO) -> None:
    """Log to `stream` from now on, and nowhere else; `auto` is text on a terminal."""
    least = logging.getLevelNamesMapping()[level.upper()]
    on_terminal = stream.isatty()
    is_text = log_format == "text" or (log_format == "auto" and on_terminal)
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _tell_exception,
        _redact,
        _order,
    ]
    handler = _Handler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_tell_foreign, *shared],
            processors=[
                ProcessorFormatter.remove_processors_meta,
                _text(colors=on_terminal) if is_text else structlog.processors.JSONRenderer(),
            ],
            use_get_message=False,
            pass_foreign_args=True,
        )
    )
    structlog.configure(
        processors=[*shared, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    logging.captureWarnings(capture=True)
    for former in logging.root.handlers[:]:
        logging.root.removeHandler(former)
        former.close()
    logging.root.addHandler(handler)
    _set_levels(least)


def _set_levels(least: int) -> None:
    """Ours as asked; libraries speak of what is wrong, and of more where debugging is asked for."""
    libraries = logging.INFO if least == logging.DEBUG else max(least, logging.WARNING)
    logging.root.setLevel(libraries)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(libraries)
    logging.getLogger(_OURS).setLevel(least)


def _text(*, colors: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=colors,
        timestamp_key="time",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


class _Handler(logging.StreamHandler[TextIO]):
    """Says that a line is missing; logging's own way of saying so shows what was in it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeats = Repeats(LIBRARIES, time.monotonic, self.say)
        self.addFilter(self._repeats)

    def close(self) -> None:
        """Write nothing any more, not even what repeats itself."""
        self._repeats.close()
        super().close()

    def say(self, record: logging.LogRecord) -> None:
        """Write what the filters have let through already."""
        self.acquire()
        try:
            self.emit(record)
        finally:
            self.release()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging calls it
        problem = type(sys.exc_info()[1]).__name__
        sys.stderr.write(f"a log line of {record.name} could not be written ({problem})\n")


def _tell_foreign(_: Any, __: str, event: EventDict) -> EventDict:
    """The first line of a library's message, with what may be shown of its arguments.

    Later lines hold representations: of a task, of a future, of the exception in it.
    """
    arguments = event.pop("positional_args")
    message = event["_record"].msg
    if isinstance(message, str):
        message = _filled(message, arguments)
    event["event"] = what_next(str(plain(message)).partition("\n")[0])
    return event


def _filled(message: str, arguments: Any) -> str:
    if not arguments:
        return message
    shown = plain(arguments)
    try:
        return message % (shown if isinstance(shown, dict) else tuple(shown))
    except (TypeError, ValueError):
        return message


def _tell_exception(_: Any, __: str, event: EventDict) -> EventDict:
    """The exception that an event came with, as text."""
    problem = event.pop("exc_info", None)
    if isinstance(problem, tuple):
        problem = problem[1]
    if problem is True:
        problem = sys.exc_info()[1]
    if isinstance(problem, BaseException):
        event["exception"] = traceback_text(problem)
    return event


def _redact(_: Any, __: str, event: EventDict) -> EventDict:
    fields = {name: event.pop(name) for name in list(event) if name not in _OWN_FIELDS}
    event.update(plain_fields(fields))
    return event


def _order(_: Any, __: str, event: EventDict) -> EventDict:
    return {name: event[name] for name in _FIRST_FIELDS if name in event} | dict(event)
