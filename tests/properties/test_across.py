"""Cleaned, late and dead records of a pipeline with a repartition depend on the source alone.

Each pipeline is run whole: partitions in random order, in random batches, with commits, crashes and
instances that take over between. The oracle looks at one source partition after the other.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing import Result, run
from headrace.testing.running import spec_of
from tests.chance import FEWER
from tests.runtime.across import (
    ACROSS,
    SOURCE,
    WITH_TWINS,
    Across,
    asides_of,
    by_place,
    expected_across,
    some_partitions,
    with_any,
)
from tests.runtime.expected import by_partition


@pytest.mark.parametrize("name", sorted(ACROSS))
@FEWER
@given(
    st.integers(1, 4),
    st.sampled_from((5, 40, 120)),
    st.integers(0, 1 << 32),
    st.lists(st.integers(0, 1 << 32), min_size=1, max_size=3, unique=True),
)
def test_the_output_is_a_function_of_the_source_partitions(
    name: str, partitions: int, count: int, seed: int, cuts: list[int]
) -> None:
    raw = some_partitions(Random(seed), partitions, count, twins=name == WITH_TWINS)
    operators = ", ".join(f"{{{one}}}" for one in ACROSS[name])
    spec = spec_of(
        f"{{pipeline: p, source: {{topic: raw, {SOURCE}}}, operators: [{operators}],"
        " sink: {topic: cleaned}}"
    )
    of_each = by_partition(raw)
    expected = expected_across(spec, {at: of_each.get(at, []) for at in range(partitions)})
    for cut in cuts:
        found = run(spec, raw, partitions=partitions, seed=cut)
        assert found.failure is None
        seen = _seen(found)
        assert seen.cleaned == with_any(expected.cleaned), f"cut {cut}"
        assert seen.late == with_any(expected.late), f"cut {cut}"
        assert seen.dead == with_any(expected.dead), f"cut {cut}"


def _seen(result: Result) -> Across:
    letters = ((letter.record.partition, letter) for letter in result.dead)
    return Across(by_place(result.cleaned), by_place(result.late), asides_of(letters))
