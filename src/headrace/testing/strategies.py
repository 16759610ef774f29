"""Strategies for hypothesis: streams as brokers bring them, out of order and with duplicates."""

from __future__ import annotations

from typing import NamedTuple

from headrace.contracts.errors import ExtraMissing
from headrace.contracts.record import Record
from headrace.testing.tables import TOPIC

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    _SENTENCE = (
        "headrace.testing.strategies needs hypothesis, which is not installed;"
        " run: pip install 'headrace[testing]'"
    )
    raise ExtraMissing(_SENTENCE) from error

__all__ = ["streams"]
KEYS = st.sampled_from((b"a", b"b", b"c", None))
VALUES = st.integers(0, 9).map(lambda number: b'{"id":%d,"amount":%d}' % (number, number * 10))


class _Step(NamedTuple):
    """One more record, against those before it."""

    key: bytes | None
    value: bytes | None
    partition: int
    later_ms: int
    """How much later it happened than the record before it."""
    behind_ms: int
    """How long it was on its way."""
    again: int | None
    """The earlier record that it repeats; None for one of its own."""


@st.composite
def streams(
    draw: st.DrawFn,
    *,
    keys: st.SearchStrategy[bytes | None] = KEYS,
    values: st.SearchStrategy[bytes | None] = VALUES,
    partitions: int = 1,
    disorder_ms: int = 60_000,
    size_max: int = 30,
) -> list[Record]:
    """Draw records in the order in which they come.

    Each is up to `disorder_ms` behind its turn. One in four or so is written twice, the second time
    at an offset of its own, as by a producer that got no answer.
    """
    steps = draw(
        st.lists(
            st.builds(
                _Step,
                keys,
                values,
                st.integers(0, partitions - 1),
                st.integers(0, disorder_ms),
                st.integers(0, disorder_ms),
                st.one_of(*[st.none()] * 3, st.integers(0, size_max)),
            ),
            max_size=size_max,
        )
    )
    return _records(steps)


def _records(steps: list[_Step]) -> list[Record]:
    records: list[Record] = []
    ends: dict[int, int] = {}
    now_ms = 0
    for step in steps:
        now_ms += step.later_ms
        if step.again is None or not records:
            at_ms = max(0, now_ms - step.behind_ms)
            record = Record(step.key, step.value, at_ms, (), TOPIC, step.partition, None)
        else:
            record = records[step.again % len(records)]
        offset = ends.get(record.partition, 0)
        ends[record.partition] = offset + 1
        records.append(record._replace(offset=offset))
    return records
