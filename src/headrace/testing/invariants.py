"""Check the invariants of every run: no record is lost, and no cut or crash changes a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast, overload

from headrace.contracts.hops import makes_order
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from headrace.extras import load
from headrace.spark_jobs.queries.described import Query
from headrace.testing.query_result import QueryResult
from headrace.testing.running import (
    AnyPipeline,
    Input,
    Result,
    play,
    rows_of,
    spec_of,
    topics_of,
)
from headrace.testing.tables import shown


def check_conservation(result: Result) -> None:
    """Check that each record is cleaned, dropped, late, dead, merged or held, and none invented.

    A pipeline that stopped half-way has records without a verdict; then this checks nothing.
    """
    if result.failure is not None:
        return
    counts = result.counts
    dropped = {name: count for name, count in counts.items() if name.startswith("dropped ")}
    came = counts.get("taken", 0) + counts.get("emitted", 0)
    became = {
        "cleaned": len(result.cleaned),
        "late": len(result.late),
        "dead": len(result.dead),
        "merged": counts.get("merged", 0),
        "held": counts.get("held", 0),
        **dropped,
    }
    listed = ", ".join(f"{count} {name}" for name, count in became.items() if count)
    assert came == sum(became.values()), f"{came} records came or were made, and became: {listed}"


@overload
def check_any_cut(
    pipeline: Query,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seeds: Iterable[int] = range(10),
) -> QueryResult: ...
@overload
def check_any_cut(
    pipeline: AnyPipeline,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seeds: Iterable[int] = range(10),
) -> Result: ...
def check_any_cut(
    pipeline: AnyPipeline | Query,
    records: str | Iterable[Input],
    *,
    partitions: int | None = None,
    seeds: Iterable[int] = range(10),
) -> Result | QueryResult:
    """Check that each partition's results do not depend on cuts, commits, crashes and takeovers.

    This does not hold for `deduplicate: {by: id}` without a `reorder` before it: there the twin
    that is read first wins. Then this checks only conservation.

    Of a query that looks up by progress it checks the rows of each key if no record is late, of
    tables the last row of each key. A look-up by `grace` depends on how far the table is read, so
    there it checks only that a micro-batch that is run again gives the same rows.
    """
    if isinstance(pipeline, Query):
        rows = rows_of(records, topics_of(pipeline))
        target = "headrace.testing.queries.running:check_any_cut"
        check_it = load(target, extra="spark", needed_for="a test of a query")
        return cast("QueryResult", check_it(pipeline, rows, partitions, seeds))
    spec = spec_of(pipeline)
    rows = rows_of(records, spec.source.topic)
    first = play(spec, rows, partitions=partitions)
    check_conservation(first)
    for seed in seeds:
        other = play(spec, rows, partitions=partitions, seed=seed)
        check_conservation(other)
        assert other.failure == first.failure, f"seed {seed}: {other.failure}, not {first.failure}"
        if not _goes_by_order_of_reading(spec):
            assert _seen(other.cleaned) == _seen(first.cleaned), f"seed {seed}: others are cleaned"
            assert _seen(other.late) == _seen(first.late), f"seed {seed}: others are late"
            assert _dead(other) == _dead(first), f"seed {seed}: others are dead"
    return first


def _goes_by_order_of_reading(spec: PipelineSpec) -> bool:
    """Return whether a pipeline compares ids behind a repartition before a step makes an order."""
    for hop in spec.hops()[1:]:
        for policy in hop.operators:
            if makes_order(policy):
                break
            if isinstance(policy, DeduplicatePolicy):
                return True
    return False


def _dead(result: Result) -> dict[str, dict[int, list[str]]]:
    """Return each operator's dead records; those of two operators are in no order."""
    operators = {letter.operator for letter in result.dead}
    return {
        operator: _seen([one.record for one in result.dead if one.operator == operator])
        for operator in operators
    }


def _seen(records: Sequence[Record]) -> dict[int, list[str]]:
    """Return the records of each partition, as a table writes them."""
    partitions = {record.partition for record in records}
    return {
        partition: shown(one for one in records if one.partition == partition)
        for partition in partitions
    }
