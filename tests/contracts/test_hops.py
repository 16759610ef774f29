"""A pipeline's hops: one, or one more for every operator that looks across partitions."""

from __future__ import annotations

from headrace.contracts.hops import FIRST_HOP, hops_of
from headrace.contracts.policies import (
    AnyOperator,
    DeduplicatePolicy,
    FilterPolicy,
    ReorderPolicy,
    TablePolicy,
)
from headrace.contracts.topology import with_names

REORDER, NO_GRACE, TABLE = ReorderPolicy(grace_ms=1), ReorderPolicy(grace_ms=0), TablePolicy()
FILTER = FilterPolicy(where="value.n > 1")
BY_KEY = DeduplicatePolicy(by="key", interval_ms=1)
BY_ID = DeduplicatePolicy(by="id", id="header.id", interval_ms=1)
AGAIN = DeduplicatePolicy(by="id", id="value.id", interval_ms=1, name="again", store="again")


def shape(*operators: AnyOperator) -> list[tuple[str, str, list[str], str, str | None]]:
    """Each hop's name, source, operators, changelog, and where it ends."""
    return [
        (
            hop.name,
            hop.topic,
            [str(policy.name) for policy in hop.operators],
            hop.changelog.name,
            None if hop.end is None else hop.end.topic.name,
        )
        for hop in hops_of("p", "raw", with_names(operators))
    ]


def test_most_pipelines_have_one_hop() -> None:
    assert shape(REORDER, BY_KEY) == [
        (FIRST_HOP, "raw", ["reorder", "deduplicate"], "p-state-changelog", None)
    ]


def test_an_id_over_all_partitions_needs_another() -> None:
    assert shape(REORDER, BY_ID, TABLE) == [
        (FIRST_HOP, "raw", ["reorder"], "p-state-changelog", "p-deduplicate-repartition"),
        (
            "deduplicate",
            "p-deduplicate-repartition",
            ["deduplicate-merge", "deduplicate", "table"],
            "p-deduplicate-changelog",
            None,
        ),
    ]


def test_the_first_hop_may_do_nothing_but_spread() -> None:
    (first, second) = shape(BY_ID)
    assert first[2] == []
    assert second[2] == ["deduplicate"]


def test_each_further_one_is_one_hop_more() -> None:
    assert [hop[0] for hop in shape(BY_ID, REORDER, AGAIN)] == [FIRST_HOP, "deduplicate", "again"]
    assert [hop[2] for hop in shape(BY_ID, REORDER, AGAIN)] == [
        [],
        ["deduplicate", "reorder"],
        ["again-merge", "again"],
    ]


def test_a_hop_ends_by_the_id_of_the_operator_behind_it() -> None:
    first, second, last = hops_of("p", "raw", with_names((BY_ID, AGAIN)))
    assert first.is_first
    assert not second.is_first
    assert first.end is not None
    assert (first.end.operator, first.end.id) == ("deduplicate", "header.id")
    assert second.end is not None
    assert (second.end.operator, second.end.id) == ("again", "value.id")
    assert second.topic == first.end.topic.name
    assert last.end is None


def test_operators_that_go_by_time_behind_a_repartition_get_one_order() -> None:
    def behind(*operators: AnyOperator) -> list[str]:
        return shape(*operators)[-1][2]

    assert behind(BY_ID, FILTER) == ["deduplicate", "filter"]
    assert behind(BY_ID, FILTER, REORDER) == ["deduplicate", "filter", "reorder"]
    assert behind(BY_ID, TABLE) == ["deduplicate", "deduplicate-merge", "table"]
    assert behind(BY_ID, NO_GRACE) == ["deduplicate", "deduplicate-merge", "reorder"]
    # The order that a reorder made before lasts.
    assert behind(REORDER, BY_ID) == ["deduplicate-merge", "deduplicate"]
