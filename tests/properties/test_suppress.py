"""Suppress keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.policies import BufferPolicy, SuppressPolicy
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, window_header
from headrace.services.operators.suppress import Suppress
from headrace.services.state.memory import MemoryStore
from tests.chance import FEWER
from tests.properties import strategies
from tests.properties.compose import expected_of
from tests.properties.drive import Drive, OneOperator, assert_agree, assert_holds, operator_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

_RISING_THEN_FAR = [
    Record(b"%d" % timestamp_ms, b"1", timestamp_ms, (), strategies.TOPIC, 0, None)
    for timestamp_ms in (*range(10), 100)
]
_TWO_THEN_THE_SECOND_AGAIN = [
    Record(key, b"1", timestamp_ms, (), strategies.TOPIC, 0, None)
    for key, timestamp_ms in ((b"a", 50), (b"b", 50), (b"b", 0))
]
Updates = tuple[list[Record], list[bytes | None]]
WINDOWS = ("tumbling", "hopping", "session", "sliding")


@st.composite
def policies(draw: st.DrawFn) -> SuppressPolicy:
    if draw(st.booleans()):
        return SuppressPolicy(
            name="suppress",
            store="suppress",
            until="time-limit",
            limit_ms=draw(strategies.durations_ms),
            buffer=draw(strategies.buffers("emit-early", "shut-down", "spill")),
        )
    return SuppressPolicy(
        name="suppress",
        store="suppress",
        until="window-closes",
        window=draw(strategies.windows(*WINDOWS)),
        buffer=draw(strategies.buffers("shut-down", "spill")),
    )


@st.composite
def updates(draw: st.DrawFn, policy: SuppressPolicy) -> Updates:
    """Updates with any old values; their windows end near their time, and a few name none."""
    chance = strategies.chance(draw(strategies.seeds))
    records: list[Record] = []
    for record in draw(strategies.records()):
        headers = record.headers
        if policy.window is not None and chance.random() < 19 / 20:
            start_ms = record.timestamp_ms - chance.choice((0, 1, 5_000))
            end_ms = record.timestamp_ms + chance.choice((0, 0, 4_999, 5_000))
            bounds = WindowBounds(policy.window.kind, start_ms, end_ms)
            headers = (*headers, window_header(bounds))
        records.append(record._replace(headers=headers))
    olds = [chance.choice((None, b"", b"1", b"a long old value of 30 bytes..")) for _ in records]
    return records, olds


@MORE
@given(st.data(), policies(), strategies.plans)
def test_it_does_what_the_oracle_says(
    data: st.DataObject, policy: SuppressPolicy, plan: list[Stop]
) -> None:
    records, olds = data.draw(updates(policy))
    expected = expected_of(policy, records, olds)
    outcome = run(operator_of(policy), records, plan, olds=olds)
    assert_agree(outcome, expected)
    assert_holds(outcome, expected)


@MORE
@given(st.data(), strategies.durations_ms, strategies.plans)
def test_it_weighs_what_the_oracle_weighs(
    data: st.DataObject, limit_ms: int, plan: list[Stop]
) -> None:
    policy = SuppressPolicy(
        name="suppress", store="suppress", until="time-limit", limit_ms=limit_ms
    )
    records, olds = data.draw(updates(policy))
    drive = Drive(operator_of(policy), records, MemoryStore(), olds)
    drive.run(plan)
    assert isinstance(drive.subject, OneOperator)
    assert isinstance(drive.subject.operator, Suppress)
    held = expected_of(policy, records, olds).held
    assert drive.subject.operator.weight == (held[-1][1] if held else 0)


@FEWER
@given(st.data(), policies(), strategies.plans)
def test_memory_and_rocksdb_agree(
    data: st.DataObject, policy: SuppressPolicy, plan: list[Stop]
) -> None:
    records, olds = data.draw(updates(policy))
    assert_both_stores_agree(operator_of(policy), records, plan, olds)


@MORE
@given(strategies.records(), strategies.durations_ms)
def test_events_have_no_old_values(records: list[Record], limit_ms: int) -> None:
    policy = SuppressPolicy(
        name="suppress",
        store="suppress",
        until="time-limit",
        limit_ms=limit_ms,
        buffer=BufferPolicy(bytes=80, when_full="emit-early"),
    )
    assert_agree(run(operator_of(policy), records), expected_of(policy, records))


@MORE
@given(strategies.positive_durations_ms, strategies.records(size_max=60), strategies.plans)
@example(10, _RISING_THEN_FAR, [Stop(3, "go")])
@example(5, _TWO_THEN_THE_SECOND_AGAIN, [Stop(2, "commit"), Stop(0, "crash")])
def test_a_buffer_that_spills_is_like_one_without_bounds(
    limit_ms: int, records: list[Record], plan: list[Stop]
) -> None:
    plain = SuppressPolicy(name="suppress", store="suppress", until="time-limit", limit_ms=limit_ms)
    spilling = plain.model_copy(update={"buffer": BufferPolicy(records=2, when_full="spill")})
    assert run(operator_of(spilling), records, plan) == run(operator_of(plain), records, plan)
