"""Table keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from hypothesis import given

from headrace.contracts.policies import TablePolicy
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.oracles.table import table
from tests.properties import strategies
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

POLICY = TablePolicy(name="table", store="table")


@MORE
@given(strategies.records(), strategies.plans)
def test_it_does_what_the_oracle_says(records: list[Record], plan: list[Stop]) -> None:
    assert_agree(run(operator_of(POLICY), records, plan), table(records))


@FEWER
@given(strategies.records(), strategies.plans)
def test_memory_and_rocksdb_agree(records: list[Record], plan: list[Stop]) -> None:
    assert_both_stores_agree(operator_of(POLICY), records, plan)
