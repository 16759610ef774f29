"""Pipelines for nonsense: each operator with each of its choices, each selector, and chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.contracts.pipeline import PipelineSpec
from tests.nonsense import functions
from tests.nonsense.records import TOPIC

Operators = list[dict[str, Any]]
_HERE = functions.__name__
_SELECTORS = (
    *("key", "value", "value.a", "value.o.b", "value.id", "header.id", "header.headrace.window"),
    *(f"{_HERE}:sometimes", f"{_HERE}:nonsense"),
)
_WHERES = (
    *("value.a >= 1", "value.a == 2.5", 'value.o.b != "3"', "value == null", "value.id < 1e308"),
    *('key > "k3"', "key >= 5", 'header.id == "7"', "header.id <= 9", "value.a == true"),
    *(f"{_HERE}:sometimes", f"{_HERE}:nonsense"),
)
_WINDOWS: Mapping[str, dict[str, Any]] = {
    "tumbling": {"kind": "tumbling", "size": "1m", "grace": "10s"},
    "hopping": {"kind": "hopping", "size": "1m", "advance": "20s", "grace": "0s"},
    "session": {"kind": "session", "gap": "10s", "grace": "1m"},
    "sliding": {"kind": "sliding", "difference": "10s", "grace": "10s"},
    "unlimited": {"kind": "unlimited"},
}
_LONGEST: Mapping[str, dict[str, Any]] = {
    "tumbling": {"kind": "tumbling", "size": 1 << 61, "grace": (1 << 61) - 1},
    "hopping": {"kind": "hopping", "size": 1 << 61, "advance": 1 << 60, "grace": (1 << 61) - 1},
    "session": {"kind": "session", "gap": 1 << 61, "grace": (1 << 61) - 1},
    "sliding": {"kind": "sliding", "difference": 1 << 60, "grace": (1 << 61) - 1},
}
_FINAL = {"suppress": {"until": "window-closes"}}
_DEDUPLICATE = {"deduplicate": {"by": "key+id", "id": "value.id", "interval": "1m"}}
_REORDER = {"reorder": {"grace": "10s"}}
_LIMIT = {"until": "time-limit", "limit": "30s"}


def shapes() -> dict[str, PipelineSpec]:
    """Every one, by name."""
    named = {**_ones(), **_chains()}
    return {name: _spec(operators, source) for name, (operators, source) in named.items()}


def _spec(operators: Operators, source: dict[str, Any]) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "pipeline": "nonsense",
            "source": {"topic": TOPIC, **source},
            "operators": operators,
            "sink": {"topic": "nonsense.cleaned"},
        }
    )


Named = dict[str, tuple[Operators, dict[str, Any]]]


def _ones() -> Named:
    found: Named = {}
    for name, operator in _each_operator():
        found[name] = ([operator], {})
    for selector in ("record", *_SELECTORS, "value.at"):
        found[f"timestamp {selector}"] = ([_REORDER], {"timestamp": selector})
    found["max-future"] = ([_REORDER], {"max-future": "1h"})
    return found


def _each_operator() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        (f"reorder {late}", {"reorder": {"grace": "10s", "late": late}})
        for late in ("forward", "drop", "topic")
    ]
    found.append(("reorder of no grace", {"reorder": {"grace": "0s"}}))
    found.append(("reorder for ever", {"reorder": {"grace": (1 << 62) - 1}}))
    for full in ("emit-early", "spill", "shut-down"):
        buffer = {"records": 60 if full == "shut-down" else 20, "when-full": full}
        found.append((f"reorder {full}", {"reorder": {"grace": "1m", "buffer": buffer}}))
        found.append((f"suppress {full}", {"suppress": {**_LIMIT, "buffer": buffer}}))
    small = {"bytes": "2KiB", "when-full": "emit-early"}
    found.append(("reorder by bytes", {"reorder": {"grace": "1m", "buffer": small}}))
    for selector in _SELECTORS:
        options = {"by": "key+id", "id": selector, "interval": "1m"}
        found.append((f"deduplicate {selector}", {"deduplicate": options}))
    found.append(("deduplicate by key", {"deduplicate": {"interval": "10s", "late": "topic"}}))
    found.append(
        ("deduplicate by id", {"deduplicate": {"by": "id", "id": "value.id", "interval": 1 << 61}})
    )
    for kind in ("tumbling", "session"):
        found.append((f"distinct {kind}", {"distinct": {"window": _WINDOWS[kind]}}))
        found.append((f"distinct {kind}, longest", {"distinct": {"window": _LONGEST[kind]}}))
    found.append(("table", {"table": {}}))
    found += [(f"filter {where}", {"filter": {"where": where}}) for where in _WHERES]
    found += _each_aggregate()
    found.append(("suppress time-limit", {"suppress": _LIMIT}))
    for kind in ("tumbling", "hopping", "session", "sliding"):
        for how, windows in (("", _WINDOWS), (", longest", _LONGEST)):
            final = {"until": "window-closes", "window": windows[kind]}
            found.append((f"suppress {kind}{how}", {"suppress": final}))
    return found


def _each_aggregate() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for function in ("count", "sum", "min", "max", "first", "last", "collect", "Sum", "Never"):
        own = function[0].isupper()
        options: dict[str, Any] = {"function": f"{_HERE}:{function}" if own else function}
        if function != "count" and not own:
            options["of"] = "value.a"
        found.append((f"aggregate {function}", {"aggregate": options}))
        for kind in ("tumbling", "session", "sliding"):
            with_window = {**options, "window": _WINDOWS[kind]}
            found.append((f"aggregate {function} {kind}", {"aggregate": with_window}))
    for kind, window in _WINDOWS.items():
        options = {"function": "sum", "of": f"{_HERE}:nonsense", "window": window}
        options |= {} if kind == "unlimited" else {"late": "topic"}
        found.append((f"aggregate nonsense {kind}", {"aggregate": options}))
    for kind, window in _LONGEST.items():
        options = {"function": "count", "window": window}
        found.append((f"aggregate {kind}, longest", {"aggregate": options}))
    for selector in _SELECTORS:
        options = {"function": "collect", "of": selector, "window": _WINDOWS["tumbling"]}
        found.append((f"aggregate collect {selector}", {"aggregate": options}))
    return found


def _chains() -> Named:
    counted = {"aggregate": {"function": "count", "window": _WINDOWS["tumbling"]}}
    summed = {"aggregate": {"function": "sum", "of": "value.a", "window": _WINDOWS["hopping"]}}
    own = {"aggregate": {"function": f"{_HERE}:Sum", "window": _WINDOWS["session"]}}
    few = {"filter": {"where": "value < 3"}}
    chains: dict[str, Operators] = {
        "cleaned": [_REORDER, _DEDUPLICATE, {"suppress": _LIMIT}],
        "final counts": [counted, _FINAL, few],
        "final sums": [_REORDER, summed, _FINAL],
        "final own": [own, _FINAL],
        "final of nonsense": [
            {"filter": {"where": f"{_HERE}:sometimes"}},
            {
                "aggregate": {
                    "function": "max",
                    "of": f"{_HERE}:nonsense",
                    "window": _WINDOWS["tumbling"],
                }
            },
            _FINAL,
        ],
        "a table filtered": [{"table": {}}, {"filter": {"where": f"{_HERE}:nonsense"}}],
        "a table sampled": [{"table": {}}, {"sample": {"every": 2}}],
        "a sample": [{"sample": {"every": 2}}, _DEDUPLICATE],
        "a table counted": [
            {"table": {}},
            {"aggregate": {"function": "sum", "of": "value.a"}},
            few,
        ],
        "sums held back": [summed, {"suppress": _LIMIT}, {"table": {}}],
        "distinct in order": [_REORDER, {"distinct": {"window": _WINDOWS["session"]}}],
        "all that is by key": [_DEDUPLICATE, {"table": {}}, {"filter": {"where": "value.a >= 1"}}],
    }
    return {name: (operators, {}) for name, operators in chains.items()}
