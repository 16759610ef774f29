"""Which vectors a broker and a sidecar cannot show, and why; by rule, never by name."""

from __future__ import annotations

from tests.conformance.pipelines import OPERATORS
from tests.conformance.vectors import Vector, is_record

_OF_TABLES = "a join or an aggregate of tables, which Spark jobs make"
_ELSEWHERE = {
    "fk_join": _OF_TABLES,
    "global_table": "a global table, which no operator of the sidecar is",
    "table_aggregate": _OF_TABLES,
    "table_ops": "steps behind a table, which Spark jobs take",
    "table_table_join": _OF_TABLES,
    "versioned_store": "operations on a store, which no topic carries",
}


def why_not(vector: Vector) -> str | None:
    """Return the part of a vector that is not for the sidecar, None if all of it is."""
    operator = vector["operator"]
    if operator == "stream_table_join":
        return _why_no_release_order(vector)
    if operator not in OPERATORS:
        return _ELSEWHERE.get(operator, f"the operator `{operator}`, which nobody here knows")
    return _why_not_one_source(vector)


def _why_no_release_order(vector: Vector) -> str | None:
    """A join's stream goes through `reorder`, where it waits; the rest of the join is Spark's."""
    if vector["config"].get("grace_ms") is None:
        return "a join without grace: nothing waits, so there is no order to compare"
    if vector.get("error"):
        return "a join that is refused, and joins are Spark jobs'"
    return _why_not_records(
        vector, [entry for entry in _records(vector) if entry["topic"] == "stream"]
    )


def _why_not_one_source(vector: Vector) -> str | None:
    records = _records(vector)
    if len({entry["topic"] for entry in records}) > 1:
        return "several topics, and a pipeline has one source"
    if vector.get("error") and len({entry.get("partition", 0) for entry in records}) > 1:
        return "a failure in one of several partitions: how far the others come is chance"
    return _why_not_records(vector, records)


def _why_not_records(vector: Vector, records: list[Vector]) -> str | None:
    if not records and not vector.get("error"):
        return "no records, so there is nothing to compare"
    if any(entry["ts"] < 0 for entry in records):
        return "timestamps below zero, which no broker takes"
    if any(not isinstance(output["after_input"], int) for output in vector["output"]):
        return "outputs when the wall clock moves, and nobody can move it here"
    return None


def _records(vector: Vector) -> list[Vector]:
    return [entry for entry in vector["input"] if is_record(entry)]
