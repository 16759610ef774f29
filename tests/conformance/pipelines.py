"""The operators that a vector speaks about, as a pipeline's YAML says them."""

from __future__ import annotations

from typing import Any

from headrace.contracts.time import format_duration_ms
from tests.conformance.functions import THIS
from tests.conformance.vectors import Vector

Operators = list[dict[str, Any]]
OPERATORS = frozenset({"dedup", "distinct", "suppress", "windowed_aggregate"})
_WHEN_FULL = {"emit": "emit-early", "shutdown": "shut-down"}
_BY = {"key_value": "key+id"}


def operators_of(vector: Vector) -> Operators:
    """A list for `operators:`; what the vector asks for and headrace refuses is written as well."""
    config = vector["config"]
    match vector["operator"]:
        case "dedup":
            return [{"deduplicate": _deduplicate(config)}]
        case "distinct":
            return [{"distinct": {"window": _window(config["window"])}}]
        case "suppress":
            counts = config["source"] == "count"
            source = {"aggregate": {"function": "count"}} if counts else {"table": {}}
            return [source, _suppress(config["suppress"])]
        case "windowed_aggregate":
            function = "count" if config["agg"] == "count" else f"{THIS}:Concatenate"
            window = _window(config["window"])
            aggregate = {"aggregate": {"function": function, "window": window}}
            suppress = config.get("suppress")
            return [aggregate] if suppress is None else [aggregate, _suppress(suppress)]
        case "stream_table_join":
            # A record that the join never holds does not move its time: rule D1.
            whole = {"filter": {"where": f"{THIS}:is_whole"}}
            return [whole, {"reorder": {"grace": format_duration_ms(config["grace_ms"])}}]
        case other:
            raise ValueError(other)


def _deduplicate(config: Vector) -> dict[str, Any]:
    by = config["by"]
    written = {"by": _BY.get(by, by), "interval": format_duration_ms(config["interval_ms"])}
    return written if by == "key" else written | {"id": f"{THIS}:{config['id_selector']}"}


def _suppress(config: Vector) -> dict[str, dict[str, Any]]:
    given = config["buffer"]
    bounds = {
        "records": given["max_records"],
        "bytes": given["max_bytes"],
        "when-full": _WHEN_FULL.get(given["when_full"]),
    }
    written: dict[str, Any] = {"until": "window-closes"}
    if config["mode"] == "time_limit":
        limit = format_duration_ms(config["time_limit_ms"])
        written = {"until": "time-limit", "limit": limit}
    buffer = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"suppress": written | ({"buffer": buffer} if buffer else {})}


def _window(config: Vector) -> dict[str, Any]:
    spans = {
        "size": config.get("size_ms"),
        "advance": config.get("advance_ms"),
        "gap": config.get("gap_ms"),
        "difference": config.get("time_difference_ms"),
        "grace": config.get("grace_ms"),
    }
    written = {name: format_duration_ms(ms) for name, ms in spans.items() if ms is not None}
    return {"kind": config["type"], **written}
