"""A task's knowledge of records to come: for how long it is wary of the next one that fails."""

from __future__ import annotations

from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.services.operators.operator import Aside
from headrace.services.runtime.input.ahead import WARY_BATCHES, Ahead, BatchFailedError

RECORD = Record(b"k", b"v", 0, (), "raw", 0, 7)


def dead(reason: Reason) -> list[Aside]:
    """A record that is dead for this reason."""
    return [Aside(0, "deduplicate", RECORD, reason, "")]


def wary_batches(ahead: Ahead) -> int:
    """How many batches it takes warily, of which no operator fails on a record."""
    batches = 0
    while ahead.is_wary:
        assert not ahead.decided(dead(Reason.UNDECODABLE))
        batches += 1
    return batches


def test_a_partition_is_wary_for_so_many_batches_behind_the_last_record_to_blame() -> None:
    ahead = Ahead()
    assert wary_batches(ahead) == 0
    assert ahead.take_care(BatchFailedError(range(5, 9)))
    assert not ahead.decided([])
    assert ahead.decided(dead(Reason.FAILED))
    assert wary_batches(ahead) == WARY_BATCHES
    assert ahead.take_care(BatchFailedError(range(20, 30)))
    assert wary_batches(ahead) == WARY_BATCHES
