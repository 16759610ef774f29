"""Operators behind an aggregate read the values that leave it, in whichever form it made them."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.hops import carries_source_values, hops_of
from headrace.contracts.policies import AggregatePolicy, DeduplicatePolicy, FilterPolicy
from headrace.contracts.serde.json import Json, decode_json_field
from headrace.contracts.topology import with_names
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.operators.service import PIPELINE, record

FRAME = b"\0\0\0\0\7"
FRAMED = FRAME + b'{"n":2}'


def read_framed(data: bytes, path: tuple[str, ...]) -> Json:
    """Read JSON behind the number of a schema."""
    if not data.startswith(FRAME):
        message = "it has no frame"
        raise RecordUndecodable(message)
    return decode_json_field(data.removeprefix(FRAME), path)


@pytest.mark.parametrize(
    ("function", "of", "where"),
    [
        ("first", None, "value.n == 2"),
        ("last", "value", "value.n == 2"),
        ("last", "value.n", "value == 2"),
        ("sum", "value.n", "value == 2"),
        ("collect", None, "value != null"),
    ],
)
def test_a_filter_behind_an_aggregate_reads_its_results(
    function: str, of: str | None, where: str
) -> None:
    policies = with_names([AggregatePolicy(function=function, of=of), FilterPolicy(where=where)])
    chain = Chain(policies, Overlay(MemoryStore(), PIPELINE).view, read=read_framed)
    step = chain.process(Batch.of([record(1, value=FRAMED)]))
    assert step.dead == []
    assert len(step.forwarded.records) == 1


@pytest.mark.parametrize(
    ("function", "of", "carries"),
    [
        ("last", None, True),
        ("last", "value.n", False),
        ("first", "key", False),
        ("max", None, False),
    ],
)
def test_a_hop_behind_an_aggregate_has_values_of_the_source_if_they_are_kept(
    function: str, of: str | None, *, carries: bool
) -> None:
    by_id = DeduplicatePolicy(by="id", id="value.id", interval_ms=1)
    hops = hops_of("p", "raw", with_names([AggregatePolicy(function=function, of=of), by_id]))
    assert carries_source_values(hops, hops[1]) is carries
    assert carries_source_values(hops, hops[0])
