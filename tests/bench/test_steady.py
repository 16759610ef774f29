"""Records come in one by one, none before it is due; and a writer's mistake is not lost."""

from __future__ import annotations

from threading import Event

import pytest

from tests.bench.steady import Due, now_ms, steadily


def test_each_record_comes_once_and_none_before_its_time() -> None:
    came: list[int] = []
    early: list[int] = []
    enough = Event()

    def write(due: Due) -> None:
        early.extend(number for number in due.numbers if due.time_ms(number) > now_ms())
        assert all(due.time_ms(number) <= due.until_ms + 1 for number in due.numbers)
        came.extend(due.numbers)
        if len(came) >= 20:
            enough.set()

    with steadily(write, a_second=1_000, every_s=0.001):
        enough.wait()
    assert came == [*range(len(came))]
    assert early == []


def test_records_that_wait_are_as_old_as_they_shall_be() -> None:
    youngest_ms: list[float] = []
    enough = Event()

    def write(due: Due) -> None:
        youngest_ms.extend(now_ms() - due.time_ms(number) for number in due.numbers)
        if youngest_ms:
            enough.set()

    with steadily(write, a_second=1_000, every_s=0.001, behind_ms=500):
        enough.wait()
    assert min(youngest_ms) >= 500


def test_a_writer_that_fails_fails_the_block() -> None:
    written = Event()

    def write(_due: Due) -> None:
        written.set()
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), steadily(write, 10, 0.001):
        written.wait()
