"""Pipeline and job files without fault, at random: all operators, all jobs, all their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random
from typing import Any

Document = dict[str, Any]

_DURATIONS = ("0s", "1ms", "30s", "10m", "1h30m", "7d", 250)
_POSITIVE = _DURATIONS[1:]
_SIZES = ("512KiB", "64MiB", "2 GB", 1000)
_SELECTORS = (
    "key",
    "value",
    "value.a",
    "value.a.b",
    "header.h",
    "header.a.b",
    "posixpath:basename",
)
_WHERES = ("value.a >= 3", 'header.h == "x"', "value != null", "key == 5", "posixpath:basename")
_FUNCTIONS = ("count", "sum", "min", "max", "first", "last", "collect")
_LATE = ("drop", "topic")


def pipeline(rng: Random) -> Document:
    """A pipeline."""
    document: Document = {"pipeline": "clicks", "source": {"topic": "clicks.raw"}}
    if rng.random() < 0.3:
        document["source"]["timestamp"] = rng.choice(("record", *_SELECTORS))
    if rng.random() < 0.5:
        document["source"]["max-future"] = rng.choice(_DURATIONS)
    kinds = rng.sample(list(OPERATORS), rng.randint(1, 3))
    document["operators"] = [{kind: OPERATORS[kind](rng)} for kind in kinds]
    document["sink"] = {"topic": "clicks.cleaned"}
    for role in ("late", "dead"):
        if rng.random() < 0.3:
            document[role] = {"topic": f"clicks.{role}.side"}
    return document


def job(rng: Random) -> Document:
    """A Spark job."""
    name = rng.choice(list(JOBS))
    inputs, options = JOBS[name]
    document: Document = {
        "job": name,
        "name": "a-query",
        "servers": rng.choice(("localhost:9092", "a:1, b:2", "[::1]:9092")),
        "checkpoint": rng.choice(("state/query", "s3a://bucket/query", "file:///state/query")),
        "inputs": {each: _input(rng, each) for each in inputs},
        "retention": rng.choice(_POSITIVE),
        "sink": rng.choice(_SINKS)(),
    }
    for option, choices in (options | _JOB_OPTIONS).items():
        if rng.random() < 0.3:
            document[option] = deepcopy(rng.choice(choices))
    return document


def window(rng: Random, *kinds: str) -> Document:
    """A window of one of these kinds."""
    kind = rng.choice(kinds)
    options: dict[str, Callable[[], Any]] = {
        "size": lambda: rng.choice(("1h", "90m", "1d")),
        "advance": lambda: rng.choice(("10m", "1h")),
        "gap": lambda: rng.choice(_POSITIVE),
        "difference": lambda: rng.choice(_POSITIVE),
        "grace": lambda: rng.choice(_DURATIONS),
    }
    return {"kind": kind, **{option: options[option]() for option in WINDOWS[kind]}}


def _reorder(rng: Random) -> Document:
    options: Document = {"grace": rng.choice(_DURATIONS)}
    if options["grace"] == "0s":
        # Every record leaves at once, so another option would do nothing, and is refused.
        return _named(rng, options)
    if rng.random() < 0.4:
        options["late"] = rng.choice(("forward", *_LATE))
    if rng.random() < 0.4:
        options["buffer"] = _buffer(rng, "emit-early", "shut-down", "spill")
    if rng.random() < 0.3:
        options["idle"] = rng.choice(_POSITIVE)
    return _named(rng, options)


def _deduplicate(rng: Random) -> Document:
    options: Document = {"interval": rng.choice(_DURATIONS)}
    by = rng.choice((None, "key", "key+id", "id"))
    if by is not None:
        options["by"] = by
    if by in {"key+id", "id"}:
        options["id"] = rng.choice(_SELECTORS)
    return _named(rng, options)


def _distinct(rng: Random) -> Document:
    return _named(rng, {"window": window(rng, "tumbling", "session"), "late": rng.choice(_LATE)})


def _aggregate(rng: Random) -> Document:
    options: Document = {"function": rng.choice(_FUNCTIONS)}
    if options["function"] != "count" and rng.random() < 0.7:
        options["of"] = rng.choice(_SELECTORS)
    # A window always, so that a suppress behind it may wait for its end.
    options["window"] = window(rng, "tumbling", "hopping", "session", "sliding")
    if rng.random() < 0.3:
        options["retention"] = "52w"
    return _named(rng, options)


def _suppress(rng: Random) -> Document:
    if rng.random() < 0.6:
        return _named(
            rng,
            {
                "until": "time-limit",
                "limit": rng.choice(_POSITIVE),
                "buffer": _buffer(rng, "emit-early", "shut-down", "spill"),
            },
        )
    # Its own window would have to be that of the aggregate, wherever one stands before it.
    return _named(rng, {"until": "time-limit", "limit": rng.choice(_POSITIVE)})


def _filter(rng: Random) -> Document:
    return _named(rng, {"where": rng.choice(_WHERES)})


def _table(rng: Random) -> Document:
    return _named(rng, {})


def _named(rng: Random, options: Document) -> Document:
    if rng.random() < 0.2:
        options["name"] = f"named-{rng.randrange(10**6)}"
    if rng.random() < 0.1:
        options["store"] = f"store-{rng.randrange(10**6)}"
    return options


def _buffer(rng: Random, *answers: str) -> Document:
    bounds: Document = {}
    if rng.random() < 0.7:
        bounds["records"] = rng.choice((0, 1, 1000))
    if not bounds or rng.random() < 0.4:
        bounds["bytes"] = rng.choice(_SIZES)
    return {**bounds, "when-full": rng.choice(answers)}


def _input(rng: Random, name: str) -> Document:
    written: Document = {"topic": f"{name}.cleaned"}
    if rng.random() < 0.6:
        written["pipeline"] = name
    return written


OPERATORS: Mapping[str, Callable[[Random], Document]] = {
    "reorder": _reorder,
    "deduplicate": _deduplicate,
    "distinct": _distinct,
    "table": _table,
    "filter": _filter,
    "aggregate": _aggregate,
    "suppress": _suppress,
}
WINDOWS: Mapping[str, tuple[str, ...]] = {
    "tumbling": ("size", "grace"),
    "hopping": ("size", "advance", "grace"),
    "session": ("gap", "grace"),
    "sliding": ("difference", "grace"),
}
_PRICED: Document = {
    "join": ("inner", "left"),
    "release": ("stream-time", "progress"),
    "grace": _DURATIONS,
    "corrections": (True, False),
    "cold-history": ({"folder": "tables/cold"},),
}
JOBS: Mapping[str, tuple[tuple[str, ...], Document]] = {
    "orders-prices": (("prices", "orders"), _PRICED),
    "count-alerts": (("limits", "counts"), {}),
    "customers-subscriptions": (("customers", "subscriptions"), {"join": ("left", "outer")}),
    "orders-customers": (("customers", "orders"), {"join": ("inner", "left")}),
    "revenue-by-segment": (("orders",), {}),
}
"""By name: its inputs, and what else its file may say."""
_JOB_OPTIONS: Document = {
    "late": ({"topic": "query.late"}, {"topic": "query.late", "partitions": 2}),
    "dead-partitions": (1, 12),
    "tasks": (1, 16),
    "shuffle-partitions": (1, 4),
    "every": _DURATIONS,
    "records-per-batch": (1, 100_000),
    "bytes-per-batch": ("1MiB", "2GiB"),
    "kafka": ({"security-protocol": "SSL"}, {"security-protocol": "PLAINTEXT"}),
    "reader": ({"kafka.client.rack": "a"}, {}),
    "writer": ({"compression.type": "zstd"},),
    "spark": ({"spark.driver.memory": "1g"},),
}
_SINKS: tuple[Callable[[], Document], ...] = (
    lambda: {"kafka": {"topic": "query.results", "partitions": 4}},
    lambda: {"delta": {"folder": "tables/results"}},
    lambda: {"iceberg": {"folder": "tables/results"}},
    lambda: {"parquet": {"folder": "tables/results"}},
    lambda: {"console": {}},
)
