"""The figures read from a state are those that the operators themselves count in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.lifespan import clock_ms
from headrace.services.operators.operator import Batch
from headrace.services.operators.reading import read_key, read_rows
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.properties import strategies
from tests.properties.drive import PIPELINE
from tests.properties.test_chain import event_chains, final_results, table_chains

NUMBERS = (b"1", b"2", b"30", None)


@given(
    st.one_of(event_chains(), final_results(), table_chains()), strategies.records(values=NUMBERS)
)
def test_operators_count_the_same(policies: tuple[AnyOperator, ...], records: list[Record]) -> None:
    store = MemoryStore()
    overlay = Overlay(store, PIPELINE)
    chain = Chain(policies, overlay.view)
    if chain.process(Batch.of(records)).failure is not None:
        return
    chain.save()
    overlay.commit({})
    before = list(store.range(b"", b"\xff"))
    for policy, operator in zip(policies, chain.operators, strict=True):
        view = overlay.view(policy.store or policy.kind)
        found = read_rows(policy, view)
        if found.what == "held":
            assert found.entries == operator.counts.held
        if isinstance(operator, Deduplicate):
            assert found.entries == len(list(operator.live_ids()))
        if found.stream_time_ms is not None:
            assert found.stream_time_ms == clock_ms(operator)
        keys = {record.key for record in records if record.key is not None}
        told = [entry for key in keys for entry in read_key(policy, view, key)]
        if found.what == "held":
            with_key = found.entries - sum(record.key is None for record in records)
            assert with_key <= len(told) <= found.entries
        # An id may be the key of another record, and is then told for both.
        assert len(set(map(repr, told))) <= found.entries
    assert list(store.range(b"", b"\xff")) == before
