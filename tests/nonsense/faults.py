"""Right documents made wrong in one place, so that each is surely wrong and has one fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from tests.nonsense.contradictions import JOB_CONTRADICTIONS, PIPELINE_CONTRADICTIONS
from tests.nonsense.right import Document
from tests.nonsense.written import Again, Raw

_NO_TEXT = ("5", "-1.5", "true", "null", "[]", "{}", "[a, b]", "{a: b}", ".5", "~", "")
_NO_MAPPING = ("5", "true", "null", "[]", "words", "[topic, x]", "''", "1.5", "2024-01-01")
_LONG = "9" * 5_000
KIND_OF: Mapping[str, str] = {
    **dict.fromkeys(
        ("grace", "interval", "limit", "size", "advance", "gap", "difference"), "duration"
    ),
    **dict.fromkeys(("retention", "idle", "max-future", "every"), "optional duration"),
    **dict.fromkeys(("bytes", "bytes-per-batch"), "size"),
    **dict.fromkeys(
        ("records", "partitions", "tasks", "shuffle-partitions", "dead-partitions"), "count"
    ),
    "records-per-batch": "count",
    "topic": "topic",
    **dict.fromkeys(("pipeline", "name", "store"), "name"),
    **dict.fromkeys(("by", "until", "when-full", "kind", "join", "release"), "choice"),
    **dict.fromkeys(("id", "of", "timestamp"), "selector"),
    "where": "where",
    "function": "function",
    **dict.fromkeys(("source", "sink", "inputs", "buffer", "kafka", "delta", "parquet"), "mapping"),
    "iceberg": "mapping",
    "console": "mapping",
    **dict.fromkeys(("window", "cold-history"), "optional mapping"),
    **dict.fromkeys(("reader", "writer", "spark"), "texts"),
    "servers": "servers",
    **dict.fromkeys(("checkpoint", "folder"), "folder"),
    "corrections": "switch",
    "operators": "operators",
    "job": "job",
}
WRONG: Mapping[str, tuple[str, ...]] = {
    "duration": (
        *("-5s", "-5", "1.5", "10 minutes", "soon", '""', "null", "true", "[]", "{}", ".5", "-.0"),
        *("1e3", "99999999999999999999", "10:30", "2024-01-01", "5S", "30sec", "'5 s'", "5s-"),
        *("30,5s", "NaN", ".nan", ".inf", "+5s", "0x10", "1_000s", "٣s", "৫m", "5µs", "30 s"),
        *(_LONG, f"{_LONG}s", f"'{_LONG}'", "P1D", "PT5M", "9223372036854775807", "1w1", "ms"),
    ),
    "size": (
        *("-1", "1.5MiB", "64 Mib", "big", '""', "true", "[]", "{}", "1e6", "64mb", "-64MiB"),
        *("٣MiB", f"{_LONG}MiB", _LONG, "2024-01-01", "1KiB2", "MiB"),
    ),
    "count": (
        *("-1", "1.5", "ten", "true", "[]", "{}", "1e3", '""', "2024-01-01", "no", ".5", "0x10"),
        *(_LONG, "'٣'", "-0.1", '"1 000"', "1000.0.0"),
    ),
    "topic": (
        *_NO_TEXT,
        *("a b", "..", ".", "a/b", "ü", "a:b", "'*'", '"a\\nb"', "a,b", "'#'", "x" * 250, '""'),
        *('"a\\0b"', "'a '", "٣", '"\\ud800"', "(a|b)", "a+b", "123", "{{topic}}", "${TOPIC}"),
    ),
    "name": (
        *("5", "true", "[]", "{}", "-a", "a b", ".a", "_a", "ü", "a/b", "x" * 81, '""'),
        *('"a\\n"', "a:b", "'a\\b'", '"\\u0007"', "2024 01"),
    ),
    "choice": ("5", "true", "null", "[]", "{}", "Key", "both", "emit_early", "''", "on", '"\\n"'),
    "selector": (
        *("5", "true", "[]", "{}", '""', "valu.a", "value.", "value..a", "header", "header."),
        *("key.a", "a b", "value[0]", "$.a", ":", "a:", ":b", "a:b:c", "module.name"),
        *("nonsense_absent:f", "json:absent", "nonsense_raises:f", "nonsense_exits:f", "json"),
        *("nonsense_values:number", "nonsense_values:text", "nonsense_syntax:f", "a-b:c", "json:"),
        *("nonsense_multiline:f", "nonsense_speechless:f", "nonsense_values:nobody.there"),
        *("nonsense_values:nullary", "nonsense_values:binary", "nonsense_values:coroutine"),
        *("nonsense_attributes:f", "nonsense_needs:f", "nonsense_recursion:f", "nonsense_deep:f"),
        *("nonsense_bytes:f", "nonsense_values:generator", "nonsense_leaves:f", "1a:b", '"\\0:b"'),
    ),
    "where": (
        *("5", "true", "null", "[]", "{}", '""', "value.a", "value.a = 3", "value.a >= three"),
        *("value.a >= [1]", "value.a == {}", "value.a < true", "value.a > null", "key == true"),
        *("value.a >= NaN", "value.a == Infinity", "value.a >= 03", "= 3", ">= 3", "a b == 1"),
        *("valu.a == 1", "value.a == 'x'", "json:loads == 1", "value.a <> 3", "value.a =! 3"),
        *("value.a == 1 and value.b == 2", f"value.a == {_LONG}", "nonsense_values:number"),
        *("nonsense_exits:f", "nonsense_raises:f", "value.a in [1]", "not value.a", "import os"),
        *("value.a == -Infinity", 'header. == "x"', "value.a >=", '"value.a == \\"\\\\ud800\\""'),
    ),
    "function": (
        *("5", "true", "null", "[]", "{}", '""', "avg", "Count", "count()", "json:absent", "sum "),
        *("json:loads", "nonsense_absent:f", "nonsense_raises:f", "nonsense_exits:f", "a:b:c"),
        *("nonsense_values:half", "nonsense_values:Raising", "nonsense_values:Needy", "count,sum"),
    ),
    "mapping": _NO_MAPPING,
    "texts": ("5", "true", "[]", "words", "{a: 5}", "{a: true}", "{a: [b]}", "{a: null}", "[a: b]"),
    "servers": (
        *_NO_TEXT,
        '""',
        "localhost",
        "a:b",
        "a:0",
        "a:99999",
        "a b:1",
        "a:1,,b:2",
        "http://a:1",
    ),
    "folder": (*_NO_TEXT, '""', '"a\\0b"', '"\\ud800"'),
    "switch": ("5", "null", "[]", "{}", "maybe", "1.5", "''"),
    "operators": (
        *(each for each in _NO_MAPPING if each != "[topic, x]"),
        "[topic]",
        "{reorder: {grace: 1s}}",
        "reorder",
        "[reorder]",
        "[5]",
        "[null]",
    ),
    "job": (
        *_NO_TEXT,
        *(
            "order-prices",
            "nonsense_absent",
            "json.decoder",
            "a b",
            ".",
            "..",
            "nonsense_exits",
            '""',
        ),
        *("nonsense_raises", "Orders-Prices", "/etc/passwd", "../job", "nonsense_job", "json."),
    ),
}
WRONG = {
    **WRONG,
    # An option that may be left out may be empty.
    **{
        f"optional {kind}": tuple(each for each in WRONG[kind] if each != "null")
        for kind in ("duration", "mapping")
    },
}
_REQUIRED = {
    *("pipeline", "source", "operators", "sink", "topic", "grace", "interval", "window", "where"),
    *("function", "until", "kind", "size", "advance", "gap", "difference", "limit"),
}
_JOB_REQUIRED = {"job", "name", "servers", "checkpoint", "inputs", "retention", "sink", "folder"}
_TAGS = (
    "!!python/object/apply:os.system ['true']",
    "!!python/object:os.system {topic: a}",
    "!!python/name:os.system",
    "!!binary aGVhZHJhY2U=",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!Secret {topic: a.b, grace: 5s, folder: x}",
    "!!timestamp 2024-01-01",
    "!include other.yaml",
    "!!int five",
    "!!float {a: 1}",
    "!!map [a]",
    "!!seq {topic: a}",
    "!!str {topic: a, grace: 5s}",
    "!!bool maybe",
    "!<tag:example.org,2024:x> y",
)
_PYTHON_NAMES = (
    "grace_ms",
    "max_future_ms",
    "when_full",
    "Topic",
    "SOURCE",
    "__class__",
    "model_config",
)
_STRANGE_KEYS = (
    "1",
    "true",
    "null",
    "1.5",
    "? [a]\n",
    "? {a: b}\n",
    "2024",
    "~",
    "''",
    '"\\0"',
    "!!int 5",
)


class Place(NamedTuple):
    """One option in a document."""

    parent: Document
    key: str


Fault = Callable[[Random, Document], object]


def places(document: Document) -> list[Place]:
    """Every option of a document."""
    return list(_places(document))


def _places(value: Any) -> Iterator[Place]:
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping):
        yield from (Place(value, key) for key in value)  # type: ignore[arg-type]  # a dict
    if isinstance(value, Mapping | list):
        for each in inner:
            yield from _places(each)


def _chosen(rng: Random, document: Document, fits: Callable[[Place], bool]) -> Place:
    return rng.choice([place for place in places(document) if fits(place)])


def _wrong_value(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: place.key in KIND_OF)
    kind = KIND_OF[place.key]
    if place.key == "pipeline" and place.parent is document:
        place.parent[place.key] = Raw(rng.choice((*WRONG[kind], "null")))
    else:
        place.parent[place.key] = Raw(rng.choice(WRONG[kind]))


def _misspelt_key(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: place.key in KIND_OF)
    letters = list(place.key)
    at = rng.randrange(len(letters))
    match rng.randrange(5):
        case 0:
            letters.insert(at, "z")
        case 1:
            letters[at] = "q"
        case 2:
            letters[at] = letters[at].upper()
        case 3:
            letters.append("\N{ZERO WIDTH SPACE}")
        case _:
            letters.append("_ms")
    _rename(place, "".join(letters))


def _missing_key(rng: Random, document: Document) -> None:
    required = _REQUIRED if "pipeline" in document else _REQUIRED | _JOB_REQUIRED
    optional = {"grace", "pipeline"} if "job" in document else set()

    def is_required(place: Place) -> bool:
        in_aggregate = place.key == "window" and "function" in place.parent
        return place.key in required - optional and not in_aggregate

    place = _chosen(rng, document, is_required)
    del place.parent[place.key]


def _duplicate_key(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda _: True)
    place.parent[Again(place.key)] = place.parent[place.key]


def _unknown_key(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: place.key in KIND_OF)
    key = rng.choice((*_PYTHON_NAMES, "x" * 3_000, "\N{BELL}", "<<", "ключ", "a b c"))
    place.parent[key] = rng.choice((1, "x", None, [], {}, [[[{}]]]))


def _strange_key(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: place.key in KIND_OF)
    place.parent[Raw(rng.choice(_STRANGE_KEYS))] = "x"


def _tag(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: KIND_OF.get(place.key) not in {None, "folder"})
    place.parent[place.key] = Raw(rng.choice(_TAGS))


def _nested(rng: Random, document: Document) -> None:
    place = _chosen(rng, document, lambda place: place.key in KIND_OF)
    depth = rng.choice((2, 60, 150, 300, 450, 10_000))
    opened, closed = rng.choice((("[", "]"), ("{a: ", "}")))
    if KIND_OF[place.key].endswith(("mapping", "operators")):
        # An unknown name in a mapping and a missing one would be two faults.
        opened, closed = "[", "]"
    place.parent[place.key] = Raw(opened * depth + "1" + closed * depth)


def _operator_not_known(rng: Random, document: Document) -> None:
    if "job" in document:
        document["job"] = rng.choice(("orders_prices", "orders-price", "nonsense_job", "os.path"))
        return
    operator = rng.choice(document["operators"])
    (kind,) = operator
    _rename(Place(operator, kind), rng.choice((kind.upper(), f"{kind}s", "dedup", "window", "map")))


def _two_kinds(rng: Random, document: Document) -> None:
    if "job" in document:
        document["sink"]["kafkaa"] = {"topic": "a"}
    else:
        rng.choice(document["operators"])["table "] = {}


def _contradiction(rng: Random, document: Document) -> None:
    known = JOB_CONTRADICTIONS if "job" in document else PIPELINE_CONTRADICTIONS
    rng.choice(known)(document)


def _rename(place: Place, key: str) -> None:
    options = dict(place.parent)
    place.parent.clear()
    place.parent.update({key if each == place.key else each: options[each] for each in options})


FAULTS: Mapping[str, tuple[int, Fault]] = {
    "wrong value": (10, _wrong_value),
    "contradiction": (8, _contradiction),
    "misspelt key": (4, _misspelt_key),
    "missing key": (3, _missing_key),
    "duplicate key": (2, _duplicate_key),
    "unknown key": (2, _unknown_key),
    "strange key": (2, _strange_key),
    "tag": (3, _tag),
    "nested too deeply": (1, _nested),
    "operator or job not known": (1, _operator_not_known),
    "two kinds at once": (1, _two_kinds),
}
"""How often each is chosen among the others, and what it does to a document."""
