"""Options that are right each by itself, and cannot stand together."""

from __future__ import annotations

from collections.abc import Callable

from tests.nonsense.right import Document

Contradiction = Callable[[Document], object]


def _operators(*operators: Document) -> Contradiction:
    return lambda document: document.update(operators=list(operators))


def _aggregate(**options: object) -> Document:
    return {"aggregate": {"function": "count", **options}}


def _window(kind: str, **options: object) -> Document:
    return {"kind": kind, **options}


_TUMBLING = _window("tumbling", size="1h", grace="10m")
_FINAL = {"until": "window-closes"}
_REORDER = {"reorder": {"grace": "1s"}}


def _buffered(**buffer: object) -> Contradiction:
    return _operators({"reorder": {"grace": "1s", "buffer": buffer}})


def _topics(**topics: str) -> Contradiction:
    return lambda document: document.update(
        {role: {"topic": topic} for role, topic in topics.items()}
    )


PIPELINE_CONTRADICTIONS: tuple[Contradiction, ...] = (
    _topics(sink="clicks.raw"),
    _topics(late="clicks.raw"),
    _topics(dead="clicks.cleaned"),
    _topics(late="x", dead="x"),
    _topics(dead="clicks.cleaned.progress"),
    _topics(source="clicks-state-changelog"),
    _topics(source="a.progress", sink="a"),
    _topics(source="clicks_raw", sink="clicks.raw"),
    _topics(sink="clicks.x", late="clicks_x"),
    _topics(sink="x" * 245),
    _operators(_REORDER, _REORDER),
    _operators({"reorder": {"grace": "1s", "name": "a"}}, {"table": {"name": "a"}}),
    _operators({"reorder": {"grace": "1s", "store": "a"}}, {"table": {"store": "a"}}),
    _operators({"reorder": {"grace": "1s"}}, {"table": {"store": "reorder"}}),
    _operators(
        {"deduplicate": {"by": "id", "id": "key", "interval": 1, "name": "state"}}, _REORDER
    ),
    _operators({"suppress": _FINAL}),
    _operators(_aggregate(), {"suppress": _FINAL}),
    _operators(_aggregate(window=_window("unlimited")), {"suppress": _FINAL}),
    _operators({"suppress": {**_FINAL, "window": _window("unlimited")}}),
    _operators(_aggregate(window=_TUMBLING), {"suppress": {**_FINAL, "limit": "5s"}}),
    _operators(
        _aggregate(window=_TUMBLING),
        {"suppress": {**_FINAL, "window": _window("session", gap="1s", grace="1s")}},
    ),
    _operators(
        _aggregate(window=_TUMBLING),
        {"suppress": {**_FINAL, "buffer": {"records": 1, "when-full": "emit-early"}}},
    ),
    _operators({"suppress": {"until": "time-limit"}}),
    _operators({"suppress": {"until": "time-limit", "limit": "1s", "window": _TUMBLING}}),
    _operators({"reorder": {"grace": 0, "late": "topic"}}),
    _operators({"reorder": {"grace": 0, "idle": "1s"}}),
    _operators({"reorder": {"grace": 0, "buffer": {"records": 1, "when-full": "spill"}}}),
    _operators(_aggregate(of="value.a")),
    _operators(_aggregate(function="posixpath:join", of="value.a")),
    _operators(_aggregate(late="topic")),
    _operators(_aggregate(late="topic", window=_window("unlimited"))),
    _operators({"filter": {"where": "value.a =< 1"}}),
    _operators(_aggregate(retention="1h")),
    _operators(_aggregate(retention="1h", window=_window("unlimited"))),
    _operators(_aggregate(retention="1h", window=_TUMBLING)),
    _operators(_aggregate(window=_window("hopping", size="1h", advance="2h", grace="0s"))),
    _operators(_aggregate(window=_window("hopping", size="52w", advance="1ms", grace="0s"))),
    _operators(_aggregate(window=_window("tumbling", size="0s", grace="0s"))),
    _operators(_aggregate(window=_window("sliding", difference=1 << 61, grace=1))),
    _operators({"distinct": {"window": _window("session", gap=1 << 61, grace=1 << 61)}}),
    _operators(_aggregate(window=_window("tumbling", size="1h", advance="1h", grace="0s"))),
    _operators(_aggregate(window=_window("tumbling", gap="1h", grace="0s", size="1h"))),
    _operators(_aggregate(window=_window("hopping", size="1h", advance="0s", grace="0s"))),
    _operators({"distinct": {"window": _window("hopping", size=2, advance=1, grace=0)}}),
    _operators({"distinct": {"window": _window("sliding", difference=2, grace=0)}}),
    _operators({"distinct": {"window": _window("unlimited")}}),
    _operators({"distinct": {"window": _TUMBLING, "late": "forward"}}),
    _operators(_aggregate(window=_TUMBLING, late="forward")),
    _operators({"deduplicate": {"by": "key", "id": "value.a", "interval": "1s"}}),
    _operators({"deduplicate": {"id": "value.a", "interval": "1s"}}),
    _operators({"deduplicate": {"by": "id", "interval": "1s"}}),
    _operators({"deduplicate": {"by": "key+id", "interval": "1s"}}),
    _buffered(records=1),
    _buffered(bytes="1MiB"),
    _buffered(**{"when-full": "spill"}),
    _buffered(**{"records": None, "when-full": "spill"}),
    _operators({"reorder": {"grace": "1s"}, "table": {}}),
    _operators({}),
    _operators(),
    _operators({"filter": {"where": "value.a == 1", "function": "count"}}),
    _operators({"table": {"kind": "table"}}),
    lambda document: document.update(pipeline="p" * 80, source={"topic": "p" * 250}),
    lambda document: document.update(job="orders-prices"),
)


def _sink(**sink: object) -> Contradiction:
    return lambda document: document.update(sink=sink)


def _input(**changes: object) -> Contradiction:
    return lambda document: next(iter(document["inputs"].values())).update(changes)


def _into_its_input(document: Document) -> None:
    (first, *_) = document["inputs"].values()
    document["sink"] = {"kafka": {"topic": first["topic"]}}


def _late_into_its_input(document: Document) -> None:
    (first, *_) = document["inputs"].values()
    document["late"] = {"topic": first["topic"]}


def _into_its_progress(document: Document) -> None:
    (first, *_) = document["inputs"].values()
    document["sink"] = {"kafka": {"topic": f"{first['topic']}.progress"}}


def _into_its_dead(document: Document) -> None:
    (first, *_) = document["inputs"].values()
    document["sink"] = {"kafka": {"topic": f"{first['topic']}.dead"}}


def _inputs_alike(document: Document) -> None:
    first, *others = document["inputs"].values()
    for other in others or [document.setdefault("late", {})]:
        other["topic"] = first["topic"]


def _late_with_results(document: Document) -> None:
    document["sink"] = {"kafka": {"topic": "query.results"}}
    document["late"] = {"topic": "query.results"}


def _sink_in_its_checkpoint(document: Document) -> None:
    document["sink"] = {"delta": {"folder": document["checkpoint"]}}


def _sink_in_its_history(document: Document) -> None:
    document.update(
        job="orders-prices",
        inputs={"prices": {"topic": "a"}, "orders": {"topic": "b"}},
        sink={"delta": {"folder": "tables/cold"}},
    )
    document.pop("join", None)
    document["cold-history"] = {"folder": "tables/cold"}


JOB_CONTRADICTIONS: tuple[Contradiction, ...] = (
    _into_its_input,
    _late_into_its_input,
    _into_its_progress,
    _into_its_dead,
    _inputs_alike,
    _late_with_results,
    _sink_in_its_checkpoint,
    _sink_in_its_history,
    _sink(),
    _sink(console=None),
    _sink(kafka=None),
    _sink(kafka={"topic": "a"}, console={}),
    _sink(console={"folder": "x"}),
    _sink(parquet={"folder": "x", "topic": "x"}),
    _input(topic=None),
    _input(pipeline="a b"),
    lambda document: document.update(retention="0s"),
    lambda document: document.update(tasks=0),
    lambda document: document.update(tasks=10**12),
    lambda document: document.update({"shuffle-partitions": 0}),
    lambda document: document.update({"hot-keys": "product-1"}),
    lambda document: document.update({"hot-keys": [7]}),
    lambda document: document.update({"shuffle-partitions": 10**12}),
    lambda document: document.update({"dead-partitions": 10**12}),
    lambda document: document.update({"bytes-per-batch": "0B"}),
    lambda document: document.update({"records-per-batch": 0}),
    lambda document: document.update({"records-per-batch": 10**30}),
    lambda document: document.update({"reader": {"subscribe": "other"}}),
    lambda document: document.update({"reader": {"kafka.bootstrap.servers": "other:9092"}}),
    lambda document: document.update({"reader": {"includeHeaders": "false"}}),
    lambda document: document.update({"reader": {"kafka.isolation.level": "read_uncommitted"}}),
    lambda document: document.update({"reader": {"failOnDataLoss": "perhaps"}}),
    lambda document: document.update({"kafka": {"sasl-username": "ada"}}),
    lambda document: document.update(
        {"kafka": {"security-protocol": "SSL"}, "reader": {"kafka.security.protocol": "SSL"}}
    ),
    lambda document: document.update({"writer": {"transactional.id": "mine"}}),
    lambda document: document.update({"writer": {"no.such.setting": "x"}}),
    lambda document: document.update({"writer": {"security.protocol": "NONE"}}),
    lambda document: document.update({"spark": {"": "x"}}),
    lambda document: document.update({"spark": {"spark.driver.memory": "lots"}}),
    lambda document: document.update({"spark": {"spark.sql.shuffle.partitions": "7"}}),
    lambda document: document.update({"spark": {"driver.memory": "1g"}}),
    lambda document: document.update(pipeline="clicks"),
    lambda document: document.update(operators=[]),
    lambda document: document["inputs"].update(more={"topic": "x"}),
)
