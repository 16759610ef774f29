"""Time across a repartition: backlogs, instances and kills show in nothing that comes out."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.runtime.across import expected_across
from tests.runtime.expected import by_partition
from tests.runtime.payments import DEDUPLICATE, PIPELINES, Case, payments, run
from tests.runtime.sidecar import Content, MakePipeline, Pipeline, contents

PARTITIONS = 8


REORDER = pytest.mark.long("time", why="the shorter pipeline runs the same path")
THREE = pytest.mark.long("time", why="three instances share a backlog")


@pytest.mark.parametrize(
    ("is_live", "instances"),
    [(False, 1), pytest.param(False, 3, marks=THREE), pytest.param(True, 3, marks=THREE)],
)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=REORDER) if "reorder" in one else one for one in PIPELINES]
)
def test_no_twin_comes_through_and_nobody_is_called_late(
    make_pipeline: MakePipeline, name: str, instances: int, *, is_live: bool
) -> None:
    raw = payments(20_000, PARTITIONS, seed=instances)
    found = run(make_pipeline, Case(name, is_live, instances), raw, PARTITIONS)
    assert found.is_right, found


@pytest.mark.long("time", why="its twin with keys runs the same path")
def test_a_null_key_in_every_record_is_as_good_as_any(make_pipeline: MakePipeline) -> None:
    raw = payments(5_000, PARTITIONS, seed=8, null_keys=1.0)
    found = run(make_pipeline, Case("by id", is_live=False, instances=1), raw, PARTITIONS)
    assert found.is_right, found


ACROSS = {
    "a reorder behind": (DEDUPLICATE, "reorder: {grace: 30s, late: topic}"),
    "a reorder before": ("reorder: {grace: 90s}", DEDUPLICATE),
    "windows behind": (
        DEDUPLICATE,
        "aggregate: {function: count, window: {kind: tumbling, size: 5m, grace: 1m}}",
        "suppress: {until: window-closes}",
    ),
}


@pytest.mark.long("time", why="three instances, one of them killed, for half a minute each")
@pytest.mark.parametrize("name", sorted(ACROSS))
def test_the_output_is_a_function_of_the_source_partitions(
    make_pipeline: MakePipeline, name: str
) -> None:
    partitions = 4
    pipeline = make_pipeline(*ACROSS[name], partitions=partitions, source="idle: never")
    # Which of two twins wins depends on arrival, unless they were put in order before.
    raw = payments(6_000, partitions, seed=7, twins=name == "a reorder before")
    half = len(raw) // 2
    pipeline.produce(raw[:half])
    for number in range(3):
        pipeline.start(f"{number}", commit_interval="100ms")
    pipeline.wait_for_cleaned(20)
    pipeline.sidecars.pop(0).kill()
    pipeline.produce(raw[half:])
    expected = expected_across(
        pipeline.spec, by_partition(pipeline.clients.consume_all(pipeline.source))
    )
    assert_is_as_expected(
        pipeline, expected_of_all(expected, "cleaned"), expected_of_all(expected, "late")
    )


def expected_of_all(expected: object, which: str) -> dict[int, list[Content]]:
    """By partition."""
    assert isinstance(expected, dict)
    return {number: getattr(place, which) for number, place in expected.items()}


def assert_is_as_expected(
    pipeline: Pipeline, cleaned: dict[int, list[Content]], late: dict[int, list[Content]]
) -> None:
    """Record by record, in order."""
    found = contents(pipeline.wait_for_cleaned(sum(map(len, cleaned.values()))))
    assert _by_place(found) == {number: of for number, of in cleaned.items() if of}
    if pipeline.spec.sends_late():
        assert _by_place(contents(pipeline.beside("late"))) == {
            n: of for n, of in late.items() if of
        }


def _by_place(found: list[Content]) -> dict[int, list[Content]]:
    places: dict[int, list[Content]] = defaultdict(list)
    for one in found:
        places[one[4]].append(one)
    return dict(places)
