"""Logs: one line an event, the same for everybody, and never what a record says."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import RecordUndecodable, StateUnavailable
from headrace.contracts.record import Record
from headrace.services.observe.logs import LIBRARIES, Format, Level, configure, logger
from headrace.services.observe.redaction import (
    WITHHELD,
    describe,
    plain,
    plain_fields,
    traceback_text,
)

CUSTOMER = "customer-7"
KEY, VALUE = CUSTOMER.encode(), b'{"card":"4111-1111"}'
RECORD = Record(KEY, VALUE, 1_000, (("session", KEY),), "clicks.raw", 3, 17)


class Terminal(StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        """Whether it is one."""
        return True


def lines(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def logged(log: Callable[[], object], level: Level = "info") -> dict[str, Any]:
    """Return the line that one call logs, as JSON."""
    stream = StringIO()
    configure("json", level, stream)
    log()
    (line,) = lines(stream)
    return line


def test_an_event_is_one_line_with_its_fields_in_order() -> None:
    line = logged(
        lambda: logger("headrace.services.x").info("The worker runs.", partitions=3, hop="state")
    )
    assert list(line) == ["time", "level", "logger", "event", "partitions", "hop"]
    assert line["time"].endswith("Z")
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "headrace.services.x",
        "event": "The worker runs.",
        "partitions": 3,
        "hop": "state",
    }


def test_lines_of_libraries_have_the_same_form() -> None:
    line = logged(lambda: logging.getLogger("aiokafka.conn").warning("Lost %s:%d", "broker", 9092))
    assert list(line) == ["time", "level", "logger", "event"]
    assert (line["level"], line["logger"]) == ("warning", "aiokafka.conn")
    assert line["event"] == "Lost broker:9092"


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", StringIO(), True),
        ("auto", Terminal(), False),
        ("json", Terminal(), True),
        ("text", StringIO(), False),
    ],
)
def test_auto_is_text_on_a_terminal(log_format: Format, stream: StringIO, *, is_json: bool) -> None:
    configure(log_format, "info", stream)
    logger("headrace.services.x").info("The worker runs.", partitions=3)
    assert stream.getvalue().startswith("{") == is_json
    assert "The worker runs." in stream.getvalue()


def test_text_has_colours_on_a_terminal_alone() -> None:
    terminal, file = Terminal(), StringIO()
    for stream in (terminal, file):
        configure("text", "info", stream)
        logger("headrace.services.x").info("The worker runs.", partitions=3)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in file.getvalue()
    assert "[headrace.services.x] partitions=3" in file.getvalue()


def test_a_broken_line_does_not_begin_another_event() -> None:
    stream = StringIO()
    configure("text", "info", stream)
    logger("headrace.services.x").info("The worker runs.", name="a\n2026-01-01 [error] b")
    assert stream.getvalue().count("\n") == 1


def test_configuring_again_changes_everything_and_doubles_nothing() -> None:
    log, before, after = logger("headrace.services.x"), StringIO(), StringIO()
    configure("json", "debug", before)
    log.debug("First.")
    for _ in range(3):
        configure("json", "info", after)
    log.debug("Second.")
    log.info("Third.")
    logging.getLogger("faust").warning("Fourth.")
    assert [line["event"] for line in lines(before)] == ["First."]
    assert [line["event"] for line in lines(after)] == ["Third.", "Fourth."]


def test_other_handlers_are_gone() -> None:
    noisy = logging.StreamHandler(StringIO())
    logging.root.addHandler(noisy)
    configure("json", "info", StringIO())
    assert noisy not in logging.root.handlers


@pytest.mark.parametrize(
    ("level", "libraries"),
    [("debug", "INFO"), ("info", "WARNING"), ("warning", "WARNING"), ("error", "ERROR")],
)
def test_libraries_are_kept_quiet_by_their_levels(level: Level, libraries: str) -> None:
    """By the effective level, so that no log record is made that nobody sees."""
    configure("json", level, StringIO())
    for name in (*LIBRARIES, "faust.worker", "aiokafka.consumer.fetcher", "mode.services"):
        assert logging.getLogger(name).getEffectiveLevel() == logging.getLevelName(libraries)
    assert logging.getLogger("headrace.services.x").getEffectiveLevel() == logging.getLevelName(
        level.upper()
    )


def test_no_log_record_is_made_below_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    configure("json", "info", stream)

    def refuse(*_: object) -> logging.LogRecord:
        message = "a log record was made"
        raise AssertionError(message)

    monkeypatch.setattr(logging, "_logRecordFactory", refuse)
    logger("headrace.services.x").debug("Nobody sees this.")
    for name in LIBRARIES:
        logging.getLogger(f"{name}.x").info("Nor this.")
    with pytest.raises(AssertionError):
        logging.getLogger("faust").warning("But this.")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    "name",
    [
        "key", "value", "password", "token", "secret", "Key", "row_key", "sasl_password",
        "ssl_key_password", "accessToken", "clientSecret", "keys", "headers", "AUTHORIZATION",
        "new-value",
    ],
)  # fmt: skip
def test_fields_that_are_called_like_secrets_are_withheld(name: str) -> None:
    line = logged(
        lambda: logger("headrace.services.x").info("The worker runs.", **{name: CUSTOMER})
    )
    assert line[name] == WITHHELD
    assert plain_fields({name: CUSTOMER}) == {name: WITHHELD}


def test_other_names_are_shown() -> None:
    fields = {"monkey": 1, "tokenizer": 2, "partition": 3, "evaluated": 4, "topic": "a"}
    assert plain_fields(fields) == fields


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (KEY, "<10 bytes>"),
        (bytearray(KEY), "<10 bytes>"),
        (Path("a") / "b", "a/b"),
        (object(), "<object>"),
        (KeyError(CUSTOMER), "KeyError"),
        ([KEY, 1, None, True, 0.5], ["<10 bytes>", 1, None, True, 0.5]),
        ({"partition": 3, "key": KEY}, {"partition": 3, "key": WITHHELD}),
        ({KEY: 1}, {"<10 bytes>": 1}),
        (TopicPartition("clicks", 3), {"topic": "clicks", "partition": 3}),
    ],
)
def test_fields_are_shown_plainly(found: object, shown: object) -> None:
    assert plain(found) == shown


def test_a_record_shows_where_it_stands_and_not_what_it_says() -> None:
    assert plain(RECORD) == {
        "key": WITHHELD,
        "value": WITHHELD,
        "timestamp_ms": 1_000,
        "headers": WITHHELD,
        "topic": "clicks.raw",
        "partition": 3,
        "offset": 17,
    }
    consumed: ConsumerRecord[bytes, bytes] = ConsumerRecord(
        "clicks.raw", 3, 17, 1_000, 0, KEY, VALUE, None, 10, 20, ()
    )
    assert plain(consumed) == "<ConsumerRecord>"


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (KeyError(CUSTOMER), "KeyError"),
        (ValueError(f"invalid literal for int(): '{CUSTOMER}'"), "ValueError"),
        (UnicodeDecodeError("utf-8", KEY, 0, 1, CUSTOMER), "UnicodeDecodeError"),
        (StateUnavailable("the disk is full"), "StateUnavailable: the disk is full"),
        (
            FileNotFoundError(2, "No such file", "a"),
            "FileNotFoundError: [Errno 2] No such file: 'a'",
        ),
        (CommitFailedError("the group has rebalanced"), None),
    ],
)
def test_an_exception_speaks_where_it_cannot_speak_of_records(
    problem: Exception, told: str | None
) -> None:
    assert describe(problem) == (told or f"CommitFailedError: {problem}")


def raise_about(record: Record) -> None:
    """A user's function that says in its exceptions what it was given."""
    try:
        int(record.value or b"")
    except ValueError as problem:
        message = f"record {record!r} is bad"
        raise TypeError(message) from problem


def problem_of_a_record() -> Exception:
    """An exception that was raised about a record, with all that hangs on it."""
    try:
        raise_about(RECORD)
    except TypeError as problem:
        return problem
    raise AssertionError


ONE = "one is %s"
LOUD: dict[str, Callable[[Exception], None]] = {
    "ours": lambda p: logger("headrace.services.x").error(
        "A batch failed.", exc_info=p, record=RECORD
    ),
    "ours, named like it": lambda p: logger("headrace.services.x").error(
        "A batch failed.", problem=p
    ),
    "argument": lambda p: logging.getLogger("faust").error("Agent crashed: %r", p),
    "mapping": lambda p: logging.getLogger("mode").error("%(key)s %(why)r", {"key": KEY, "why": p}),
    "traceback": lambda p: logging.getLogger("faust").error("Agent crashed", exc_info=p),
    "exception as message": lambda p: logging.getLogger("faust").error(p),
    "record": lambda _: logging.getLogger("aiokafka").warning("Skipped %s", RECORD),
    "list": lambda _: logging.getLogger("aiokafka").warning("Skipped %s", [KEY, VALUE]),
    "wrong arguments": lambda _: logging.getLogger("aiokafka").warning("%d", KEY),
    "too many arguments": lambda _: logging.getLogger("aiokafka").warning(ONE, KEY, VALUE),
    "object": lambda p: logging.getLogger("faust").warning("Task %r", asyncio_task_like(p)),
    "representation": lambda p: logging.getLogger("asyncio").error(f"Lost\nfuture: {p!r}"),  # noqa: G004 - as it does
}


def asyncio_task_like(problem: Exception) -> object:
    """An object whose representation has everything in it."""

    class Task:
        def __repr__(self) -> str:
            return f"<Task exception={problem!r}>"

    return Task()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("loud", LOUD)
def test_a_records_content_is_never_logged(loud: str, form: Format) -> None:
    stream = StringIO()
    configure(form, "debug", stream)
    LOUD[loud](problem_of_a_record())
    text = stream.getvalue()
    assert text != ""
    assert CUSTOMER not in text
    assert "4111-1111" not in text


def test_a_task_that_nobody_waits_for_says_nothing_of_its_record() -> None:
    """The loop itself puts the representation of the exception into its message."""
    stream = StringIO()
    configure("json", "info", stream)

    async def fail() -> None:
        raise_about(RECORD)

    async def run() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "A task failed", "exception": problem_of_a_record(), "key": KEY}
        )
        await asyncio.sleep(0)

    asyncio.run(run())
    (line,) = lines(stream)
    assert line["event"] == "A task failed"
    assert "raise_about" in line["exception"]
    assert CUSTOMER not in stream.getvalue()


def test_a_traceback_says_where_and_why_without_saying_what() -> None:
    text = traceback_text(problem_of_a_record())
    assert "in raise_about" in text
    assert text.index("ValueError") < text.index("which led to:") < text.rindex("TypeError")
    assert CUSTOMER not in text


def test_all_of_a_group_of_exceptions_is_told() -> None:
    group = ExceptionGroup("two", [RecordUndecodable("not JSON"), problem_of_a_record()])
    text = traceback_text(group)
    assert text.count("one of them:") == 2
    assert "RecordUndecodable: not JSON" in text
    assert CUSTOMER not in text


def test_exceptions_that_caused_each_other_end() -> None:
    one, other = KeyError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert traceback_text(one) == "ValueError\nwhich led to:\nKeyError"


@given(st.recursive(st.binary() | st.integers(), lambda inner: st.lists(inner) | st.tuples(inner)))
def test_every_logged_value_becomes_json(found: Any) -> None:
    json.dumps(plain(found))


def test_warnings_are_logged() -> None:
    def warn() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=True)
            warnings.warn("an option is old", DeprecationWarning, stacklevel=1)

    line = logged(warn)
    assert line["logger"] == "py.warnings"
    assert "an option is old" in line["event"]


def test_a_line_that_cannot_be_written_is_said_without_what_was_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = StringIO()
    configure("json", "info", stream)
    stream.close()
    logging.getLogger("faust").error("Agent crashed: %r", KEY)
    said = capsys.readouterr().err
    assert said == "a log line of faust could not be written (ValueError)\n"
    assert sys.stderr is not stream
