"""One budget of memory: whatever it is, and for any number of partitions, its parts fit into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.policies import (
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    MergePolicy,
    ReorderPolicy,
)
from headrace.services.runtime.machine.budget import (
    MIB,
    PARTITION_BYTES,
    PROCESS_BYTES,
    Budget,
    budget_of,
    least_bytes,
    with_held_bounds,
)
from headrace.services.runtime.machine.machine_memory import memory_of_machine_bytes
from tests.runtime.expected import REORDER_AND_DEDUPLICATE, assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline

BUDGETS = st.integers(64 * MIB, 64 << 30)
PARTITIONS = st.integers(1, 1_000)


def taken_bytes(budget: Budget, partitions: int) -> int:
    """The most that all parts may take."""
    shares = budget.shares(partitions)
    each = shares.fetch_bytes + shares.waiting_bytes + 3 * shares.open_bytes + shares.held_bytes
    return PROCESS_BYTES + partitions * (PARTITION_BYTES + each) + budget.state_bytes(partitions)


@given(BUDGETS, PARTITIONS)
def test_all_parts_fit_or_it_is_said_that_they_do_not(total_bytes: int, partitions: int) -> None:
    budget = Budget(total_bytes)
    if budget.fits(partitions):
        assert taken_bytes(budget, partitions) <= total_bytes
    else:
        # As if it were the least that works.
        assert budget.shares(partitions) == Budget(least_bytes(partitions)).shares(partitions)


@given(BUDGETS, PARTITIONS)
def test_no_part_is_too_small_to_work(total_bytes: int, partitions: int) -> None:
    budget = Budget(total_bytes)
    assert min(budget.shares(partitions)) >= 16 << 10
    assert budget.state_bytes(partitions) >= MIB // 4
    assert budget.fetched_bytes(partitions) >= 512 << 10


@given(BUDGETS, PARTITIONS)
def test_more_partitions_have_smaller_shares_and_more_memory_larger_ones(
    total_bytes: int, partitions: int
) -> None:
    shares = Budget(total_bytes).shares(partitions)
    fewer, more = Budget(total_bytes).shares(partitions + 1), Budget(2 * total_bytes)
    for one, with_more, with_memory in zip(shares, fewer, more.shares(partitions), strict=True):
        assert with_more <= one <= with_memory


def test_the_setting_counts_and_else_half_of_the_machine() -> None:
    assert budget_of(300 * MIB, 1 << 40) == Budget(300 * MIB)
    assert budget_of(None, 1 << 30) == Budget(512 * MIB)


@pytest.mark.parametrize(("given_bytes", "machine_bytes"), [(64 * MIB, 1 << 40), (None, 128 * MIB)])
def test_too_little_is_refused_and_the_least_is_named(
    given_bytes: int | None, machine_bytes: int
) -> None:
    with pytest.raises(SettingsInvalid, match="at least 107MiB"):
        budget_of(given_bytes, machine_bytes)
    assert budget_of(107 * MIB, machine_bytes).fits(1)


def test_the_least_limit_of_all_cgroups_counts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/pods/one\n", "utf-8")
    machine_bytes = memory_of_machine_bytes(tmp_path, own)
    assert machine_bytes > 64 * MIB
    (tmp_path / "pods" / "one").mkdir(parents=True)
    (tmp_path / "pods" / "one" / "memory.max").write_text("max\n", "ascii")
    assert memory_of_machine_bytes(tmp_path, own) == machine_bytes
    (tmp_path / "pods" / "memory.max").write_text("50000000\n", "ascii")
    assert memory_of_machine_bytes(tmp_path, own) == 50_000_000


def test_a_cgroup_of_the_first_version_counts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/docker/one\n3:cpu:/docker/one\n", "utf-8")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("40000000\n", "ascii")
    assert memory_of_machine_bytes(tmp_path, own) == 40_000_000


def test_unbounded_operators_hold_within_a_share_and_bounds_of_users_stay() -> None:
    bounded = ReorderPolicy(grace_ms=1, buffer=BufferPolicy(records=7, when_full="emit-early"))
    policies: list[AnyOperator] = [
        ReorderPolicy(grace_ms=1),
        DeduplicatePolicy(by="key", interval_ms=1),
        ReorderPolicy(grace_ms=2),
        bounded,
    ]
    first, deduplicate, second, last = with_held_bounds(policies, 8 * MIB)
    bounds = BufferPolicy(records=2 * MIB // 400, bytes=2 * MIB, when_full="spill")
    assert first == policies[0].model_copy(update={"buffer": bounds})
    assert second == policies[2].model_copy(update={"buffer": bounds})
    assert (deduplicate, last) == (policies[1], bounded)


def test_a_merge_holds_within_a_share_and_its_options_in_state_stay_as_they_were() -> None:
    merge = MergePolicy(name="ids-merge", store="ids-merge")
    (bounded,) = with_held_bounds([merge], 8 * MIB)
    assert isinstance(bounded, MergePolicy)
    assert bounded.buffer == BufferPolicy(records=4 * MIB // 400, bytes=4 * MIB, when_full="spill")
    assert merge.model_dump().keys() == {"name", "store", "kind"}


def test_a_sidecar_with_too_little_ends_with_the_sentence(make_pipeline: MakePipeline) -> None:
    sidecar = make_pipeline("deduplicate: {by: key, interval: 10m}").start(memory="64MiB")
    assert sidecar.wait() == SettingsInvalid.exit_code
    assert "HEADRACE_MEMORY: 64MiB is too little" in sidecar.last_words


def test_values_larger_than_what_may_wait_pass(make_pipeline: MakePipeline) -> None:
    """Each fills its part by itself, and is committed alone; held ones lie on disk."""
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=4)
    pipeline.produce(some_records(120, 1, 4, value_bytes=200 << 10))
    pipeline.produce(some_records(40, 2, 4, start_ms=12_000))
    sidecar = pipeline.start(memory="120MiB", transaction_timeout="2m")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
