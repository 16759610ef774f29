"""Rows that lie in segments of former lengths: only a newer layout says so."""

from __future__ import annotations

import pytest

from headrace.contracts.policies import read_operator
from headrace.services.operators.chain import Chain
from headrace.services.state.layout import ONE_LENGTH_VERSION, OPERATORS_VERSION
from headrace.services.state.partition import PartitionState
from headrace.services.state.stamps import layout_of
from tests.state.test_stamps import Operator, stamp, state, write

__all__ = ["state"]


def by_interval(interval: str) -> Operator:
    return {"deduplicate": {"by": "key", "interval": interval}}


def sessions(gap: str, **aggregate: str) -> Operator:
    window = {"kind": "session", "gap": gap, "grace": "0s"}
    kind = "aggregate" if aggregate else "distinct"
    return {kind: {"window": window, **aggregate}}


@pytest.mark.parametrize(
    ("before", "after", "layout"),
    [
        (by_interval("1m"), by_interval("4m"), ONE_LENGTH_VERSION),
        (by_interval("1m"), by_interval("1h"), OPERATORS_VERSION),
        (sessions("1m"), sessions("4m"), ONE_LENGTH_VERSION),
        (sessions("1m"), sessions("1h"), OPERATORS_VERSION),
        (sessions("1m", function="count"), sessions("1h", function="count"), OPERATORS_VERSION),
    ],
)
def test_rows_in_segments_of_former_lengths_are_of_a_newer_version(
    state: PartitionState, before: Operator, after: Operator, layout: int
) -> None:
    write(state, before, records=3)
    chain = Chain([read_operator(one) for one in stamp(after).operators], state.overlay.view)
    assert layout_of(chain.operators) == layout
