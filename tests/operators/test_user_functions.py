"""A user's function that raises kills the record it was given, and nothing else."""

from __future__ import annotations

import pytest

from headrace.contracts.decision import Reason
from headrace.contracts.policies import (
    AggregatePolicy,
    DeduplicatePolicy,
    FilterPolicy,
    Hopping,
    Session,
    Sliding,
    SuppressPolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.record import Record
from tests.operators.service import Service, left, record

HERE = f"{__name__}:"


class Touchy:
    """Keeps values side by side; will not touch `poison`, and raises now and then in between."""

    def initial(self) -> bytes | None:
        """No result yet."""
        return None

    def add(self, aggregate: bytes | None, one: Record) -> bytes | None:
        """Append the value; `early` is refused where something is there already."""
        value = one.value or b""
        if value == b"poison" or (value == b"early" and aggregate):
            raise ValueError(value)
        return (aggregate or b"") + value

    def merge(self, one: bytes | None, other: bytes | None) -> bytes | None:
        """Join two sessions, unless one of them ends in an odd place."""
        if other == b"split":
            raise KeyError(other)
        return (one or b"") + (other or b"")


def odd_id(one: Record) -> bytes:
    """An id that not every record has."""
    return {b"good": b"id"}[one.value or b""]


def holds(one: Record) -> bool:
    """A predicate that cannot stand every value."""
    return int(one.value or b"") > 0


WINDOWS: tuple[Window | None, ...] = (
    None,
    Tumbling(size_ms=100, grace_ms=100),
    Hopping(size_ms=100, advance_ms=25, grace_ms=100),
    Session(gap_ms=100, grace_ms=100),
    Sliding(difference_ms=100, grace_ms=100),
    Unlimited(),
)
every_window = pytest.mark.parametrize(
    "window", WINDOWS, ids=lambda window: window.kind if window else "none"
)


def touchy(window: Window | None) -> AggregatePolicy:
    """An aggregate with the function above."""
    return AggregatePolicy(function=HERE + "Touchy", window=window)


def rows_of(service: Service) -> list[tuple[bytes, bytes]]:
    """All that is committed."""
    return list(service.store.range(b"", b"\xff"))


@every_window
def test_the_record_is_dead_and_says_which_function_raised_what(window: Window | None) -> None:
    poison = record(210, value=b"poison")
    step = Service(touchy(window)).take(record(200), poison, record(220))
    assert [aside[:4] for aside in step.dead] == [(1, "aggregate", poison, Reason.FAILED)]
    assert step.dead[0].detail == f"`{HERE}Touchy` raised ValueError in `add`"
    assert set(step.forwarded.causes) == {0, 2}


@every_window
def test_the_state_is_that_of_a_stream_without_the_record(window: Window | None) -> None:
    with_it, without = Service(touchy(window)), Service(touchy(window))
    poison = record(210, value=b"poison")
    gone = [left(with_it.take(record(200), poison)), left(with_it.take(poison, record(220)))]
    assert gone == [left(without.take(record(200))), left(without.take(record(220)))]
    assert rows_of(with_it) == rows_of(without)


@every_window
def test_after_a_restart_nothing_of_it_is_there(window: Window | None) -> None:
    first = Service(touchy(window))
    first.take(record(200), record(210, value=b"poison"))
    (*_, last) = left(first.restarted(touchy(window)).take(record(200, value=b"2")))
    assert b"poison" not in (last.value or b"")


def test_a_record_that_some_windows_take_and_one_does_not_is_in_no_window() -> None:
    window = Hopping(size_ms=100, advance_ms=50, grace_ms=100)
    service = Service(touchy(window))
    service.take(record(160, value=b"a"))
    before = rows_of(service)
    # 110 is in [50, 150), which is empty and would take it, and in [100, 200), where `a` is.
    early = record(110, value=b"early")
    step = service.take(early, record(110, value=b"b"))
    assert [aside.record for aside in step.dead] == [early]
    assert [one.value for one in left(step)] == [b"b", b"ab"]
    assert rows_of(service) != before
    before = rows_of(service)
    assert left(service.take(early)) == []
    assert rows_of(service) == before


def test_sessions_that_cannot_be_joined_stay_two() -> None:
    service = Service(touchy(Session(gap_ms=10, grace_ms=100)))
    service.take(record(100, value=b"one"), record(120, value=b"split"))
    before = rows_of(service)
    between = record(110, value=b"x")
    step = service.take(between)
    assert [aside.record for aside in step.dead] == [between]
    assert step.dead[0].detail == f"`{HERE}Touchy` raised KeyError in `merge`"
    assert left(step) == []
    assert rows_of(service) == before
    (withdrawn, joined) = left(service.take(record(95, value=b"y")))
    assert (withdrawn.value, joined.value) == (None, b"oney")


@every_window
@pytest.mark.parametrize("explain", [False, True])
def test_a_dead_record_does_not_move_stream_time(window: Window | None, *, explain: bool) -> None:
    with_it, without = (Service(touchy(window), explain=explain) for _ in range(2))
    far = record(900_000, value=b"poison")
    gone = [left(with_it.take(record(200), far, record(210)))]
    gone += [left(with_it.take(far)), left(with_it.take(record(150)))]
    assert gone == [
        left(without.take(record(200), record(210))),
        [],
        left(without.take(record(150))),
    ]
    assert rows_of(with_it) == rows_of(without)
    counts = with_it.chain.operators[0].counts
    assert (counts.dead, counts.failed, counts.balance()) == (2, 2, 0)


@pytest.mark.parametrize("window", [Tumbling(size_ms=100, grace_ms=0), WINDOWS[2]], ids=repr)
def test_a_dead_record_closes_no_window_before_a_suppress(window: Window) -> None:
    final = SuppressPolicy(until="window-closes", window=window)
    service = Service(touchy(window), final)
    service.take(record(200), record(900_000, value=b"poison"))
    step = service.take(record(210, value=b"2"), record(900_000, key=b"j"))
    assert b"12" in [one.value for one in left(step)]


def test_a_dead_record_is_counted_once() -> None:
    service = Service(touchy(Tumbling(size_ms=100, grace_ms=0)))
    service.take(record(200), record(900, value=b"poison"))
    counts = service.chain.operators[0].counts
    assert (counts.dead, counts.merged, counts.emitted, counts.balance()) == (1, 1, 1, 0)


def test_an_id_function_that_raises_kills_its_record_alone() -> None:
    policy = DeduplicatePolicy(by="id", id=HERE + "odd_id", interval_ms=100)
    good, bad = record(1, value=b"good"), record(2, value=b"bad")
    step = Service(policy).take(good, bad, good._replace(timestamp_ms=3))
    assert left(step) == [good]
    assert [(aside.cause, aside.record) for aside in step.dead] == [(1, bad)]


def test_a_predicate_that_raises_kills_its_record_alone() -> None:
    good, bad = record(1, value=b"1"), record(2, value=b"bad")
    step = Service(FilterPolicy(where=HERE + "holds")).take(good, bad, record(3, value=b"0"))
    assert left(step) == [good]
    assert [(aside.cause, aside.reason) for aside in step.dead] == [(1, Reason.FAILED)]
