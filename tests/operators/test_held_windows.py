"""Results that stand in a suppress alone: the same results, and half the rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    Hopping,
    Session,
    SuppressPolicy,
    Tumbling,
    retention_needed_ms,
)
from headrace.contracts.record import Record
from headrace.contracts.topology import with_names
from headrace.services.operators.windows.held_windows import give_back, may_share
from headrace.services.operators.windows.time_windows import has_rows
from tests.operators.service import FAR_MS, Service, left, record
from tests.properties import strategies
from tests.properties.strategies import MORE

TUMBLING = Tumbling(size_ms=10_000, grace_ms=5_000)
HOPPING = Hopping(size_ms=10_000, advance_ms=5_000, grace_ms=5_000)
WINDOWS = (TUMBLING, HOPPING)
FINAL = BufferPolicy()
SPILL = BufferPolicy(records=2, when_full="spill")
LAST = record(FAR_MS * 4, b"last")
every_window = pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.kind)
parts = st.lists(strategies.records(size_max=10), min_size=3, max_size=3)
lives = st.tuples(st.booleans(), st.booleans(), st.booleans())
Policies = tuple[AnyOperator, ...]


def final(
    window: Tumbling | Hopping, buffer: BufferPolicy = FINAL, *, with_rows: bool = False
) -> Policies:
    """A sum's final results; its own rows are kept where somebody wants to look them up."""
    retention_ms = retention_needed_ms(window) if with_rows else None
    aggregate = AggregatePolicy(function="sum", window=window, retention_ms=retention_ms)
    suppress = SuppressPolicy(until="window-closes", window=window, buffer=buffer)
    return with_names((aggregate, suppress))


def has_own(service: Service) -> bool:
    """Whether the windows have put rows."""
    return has_rows(service.overlay.view("aggregate"))


@every_window
def test_a_result_that_is_held_stands_there_alone(window: Tumbling | Hopping) -> None:
    apart = Service(*final(window, with_rows=True))
    held = Service(*final(window))
    for service in (apart, held):
        service.take(record(1_000, b"k", b"1"), record(2_000, b"k", b"2"))
    assert has_own(apart)
    assert not has_own(held)
    step = held.restarted(*final(window)).take(record(1_500, b"k", b"4"), LAST)
    assert next((one.value, one.timestamp_ms) for one in left(step)) == (b"7", 2_000)


def test_other_operators_behind_get_rows_of_the_windows_own() -> None:
    aggregate, suppress = final(TUMBLING)
    limit = SuppressPolicy(until="time-limit", limit_ms=1_000)
    session = Session(gap_ms=1_000, grace_ms=0)
    assert may_share(aggregate, suppress)
    assert not may_share(aggregate, None)
    assert not may_share(aggregate, limit)
    assert not may_share(suppress, suppress)
    sessions = AggregatePolicy(function="sum", window=session)
    assert not may_share(sessions, SuppressPolicy(until="window-closes", window=session))
    assert not may_share(final(TUMBLING, with_rows=True)[0], suppress)


@every_window
def test_a_window_whose_result_has_left_stays_closed(window: Tumbling | Hopping) -> None:
    first = Service(*final(window))
    assert len(left(first.take(record(1_000, b"k", b"1"), record(15_000, b"k", b"2")))) == 1
    longer = window.model_copy(update={"grace_ms": 60_000})
    second = first.restarted(*final(longer))
    step = second.take(record(2_000, b"k", b"4"), record(12_000, b"k", b"8"), LAST)
    assert sum(second.chain.operators[0].counts.dropped.values()) == 1, "it is late"
    sums = {one.value for one in left(step) if (one.key or b"").startswith(b"k")}
    assert b"10" in sums, "what is open goes on"
    assert b"4" not in sums, "and what has left does not come again"


@MORE
@given(
    st.sampled_from(WINDOWS),
    st.sampled_from((FINAL, SPILL)),
    parts,
    lives,
)
def test_it_shows_in_no_result_where_they_stand(
    window: Tumbling | Hopping,
    buffer: BufferPolicy,
    inputs: list[list[Record]],
    with_rows: tuple[bool, ...],
) -> None:
    apart = Service(*final(window, buffer, with_rows=True))
    expected = [left(apart.take(*part)) for part in (*inputs, [LAST])]
    service = Service(*final(window, buffer, with_rows=with_rows[0]))
    found = [left(service.take(*inputs[0]))]
    for now, before, part in zip(with_rows[1:], with_rows, inputs[1:], strict=False):
        if now and not before:
            give_back(service.overlay.view("aggregate"), service.overlay.view("suppress"))
            service.overlay.commit({})
        service = service.restarted(*final(window, buffer, with_rows=now))
        found.append(left(service.take(*part)))
    found.append(left(service.take(LAST)))
    assert found == expected
