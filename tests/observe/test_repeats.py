"""Libraries that repeat themselves are heard once in a while, and counted."""

from __future__ import annotations

import logging
import threading
from io import StringIO

from headrace.services.observe.logs import configure
from headrace.services.observe.repeats import AGAIN_AFTER_S, Repeats


def said(name: str, message: str) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, message, ("127.0.0.1",), None)


def filtering(now_s: list[float] | None = None) -> tuple[Repeats, list[str]]:
    """A filter whose clock is set by hand, and what it says by itself."""
    clock, told = now_s or [0.0], list[str]()
    repeats = Repeats(
        ("aiokafka",), lambda: clock[0], lambda record: told.append(record.getMessage())
    )
    return repeats, told


def test_a_repetition_waits_and_is_counted() -> None:
    now_s = [0.0]
    repeats, _ = filtering(now_s)
    assert repeats.filter(said("aiokafka.conn", "no way to %s"))
    assert not any(repeats.filter(said("aiokafka.conn", "no way to %s")) for _ in range(120))
    now_s[0] = AGAIN_AFTER_S
    again = said("aiokafka.conn", "no way to %s")
    assert repeats.filter(again)
    assert again.getMessage() == "no way to 127.0.0.1 (and 120 times since the last line)"


def test_lines_held_back_are_told_where_none_like_them_comes_again() -> None:
    now_s = [0.0]
    repeats, told = filtering(now_s)
    assert repeats.filter(said("aiokafka.conn", "no way to %s"))
    assert not repeats.filter(said("aiokafka.conn", "no way to %s"))
    repeats.tell()
    assert told == []
    now_s[0] = AGAIN_AFTER_S
    repeats.tell()
    repeats.tell()
    assert told == ["no way to 127.0.0.1 (and 1 times since the last line)"]
    # From then on it is one that was just said.
    assert not repeats.filter(said("aiokafka.conn", "no way to %s"))


def test_another_message_or_logger_is_heard_at_once() -> None:
    repeats, _ = filtering()
    assert repeats.filter(said("aiokafka.conn", "no way to %s"))
    assert repeats.filter(said("aiokafka.client", "no way to %s"))
    assert repeats.filter(said("aiokafka.conn", "%s is back"))


def test_our_own_lines_are_never_held_back() -> None:
    repeats, _ = filtering()
    assert all(
        repeats.filter(said("headrace.services.runtime.task.task", "running on %s"))
        for _ in range(3)
    )


def test_messages_that_are_all_different_do_not_fill_memory() -> None:
    repeats, _ = filtering()
    for number in range(5_000):
        assert repeats.filter(said("aiokafka.conn", f"request {number} of %s"))
    assert len(repeats._said) <= 500  # noqa: SLF001


def test_a_handler_that_is_replaced_tells_of_no_repetition_later() -> None:
    stream, others = StringIO(), threading.enumerate()
    configure("json", "info", stream)
    for _ in range(2):
        logging.getLogger("aiokafka").warning("Gone.")
    (timer,) = (one for one in threading.enumerate() if one not in others)
    configure("json", "info", StringIO())
    timer.join()
    assert stream.getvalue().count("Gone.") == 1


def repeated(message: object) -> str:
    """Return the log line of a message that comes three times, and once again after a while."""
    now_s = [0.0]
    repeats, _ = filtering(now_s)
    for _ in range(3):
        repeats.filter(logging.LogRecord("aiokafka", logging.WARNING, "", 0, message, (), None))
    now_s[0] = AGAIN_AFTER_S
    again = logging.LogRecord("aiokafka", logging.WARNING, "", 0, message, (), None)
    assert repeats.filter(again)
    return again.getMessage()


def test_a_repeated_exception_is_counted_without_what_it_says_of_a_record() -> None:
    found = repeated(KeyError("customer-7"))
    assert found == "KeyError (and 2 times since the last line)"


def test_a_count_stands_in_the_first_line_which_alone_is_shown() -> None:
    found = repeated("no way\nto customer-7")
    assert found.partition("\n")[0] == "no way (and 2 times since the last line)"
