"""Every problem is told in words for people."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.pipeline import PipelineSpec, Sink, Source, Topic
from headrace.contracts.pipeline_text import EXAMPLES, read_pipeline
from headrace.contracts.policies import OPERATOR_KINDS, WINDOW_KINDS, BufferPolicy
from headrace.contracts.problem_text import Places, show

JARGON = re.compile(
    r"Input should|Field required|Value error|Extra inputs|valid dictionary|instance of|type="
    r"|pydantic|discriminator|None|cannot stand here",
)
MODELS: list[type[BaseModel]] = [
    PipelineSpec,
    Sink,
    Source,
    Topic,
    BufferPolicy,
    *OPERATOR_KINDS.values(),
    *WINDOW_KINDS.values(),
]
OPTIONS = sorted(
    {str(field.alias) for model in MODELS for field in model.model_fields.values()}
    | {*OPERATOR_KINDS, *WINDOW_KINDS}
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 1 << 70),
    st.floats(),
    # A sentence repeats what somebody wrote, be it jargon.
    st.text(max_size=5).filter(lambda text: not JARGON.search(text)),
    st.sampled_from(["10m", "key", "value.a", "count", "topic", "a:b", "x y", *OPTIONS]),
)
RIGHT_BUT_USELESS = (
    {"reorder": {"grace": 0, "idle": "5s"}},
    {"aggregate": {"function": "count", "late": "topic"}},
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(OPTIONS), inner, max_size=4)
    ),
    max_leaves=12,
)


def problems(document: object, places: Places | None = None) -> list[str]:
    """Return the sentences about a document."""
    with pytest.raises(PipelineInvalid) as error:
        read_pipeline(document, "clicks.yaml", places or {})
    return str(error.value).splitlines()


def whole(**changes: object) -> dict[str, object]:
    """A pipeline without fault but for the changes."""
    return {
        "pipeline": "clicks",
        "source": {"topic": "clicks.raw"},
        "operators": [{"reorder": {"grace": "30s"}}],
        "sink": {"topic": "clicks.cleaned"},
    } | changes


def in_operator(kind: str, **options: object) -> dict[str, object]:
    """A pipeline with one operator."""
    return whole(operators=[{kind: options}])


@given(JUNK)
def test_junk_is_told_in_words(junk: object) -> None:
    for line in problems(junk):
        assert not JARGON.search(line), line
        assert line.startswith("clicks.yaml:1:1: ")


@given(st.sampled_from(sorted(OPERATOR_KINDS)), st.dictionaries(st.sampled_from(OPTIONS), JUNK))
def test_junk_in_an_operator_is_told_in_words(kind: str, junk: dict[str, object]) -> None:
    document = whole(operators=[{kind: junk | {"impossible": 1}}])
    for line in problems(document):
        assert not JARGON.search(line), line


@given(st.sampled_from(sorted(whole())), JUNK)
def test_junk_in_an_option_is_told_in_words(option: str, junk: object) -> None:
    document = whole(**{option: junk}, impossible=1)
    for line in problems(document):
        assert not JARGON.search(line), line


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "`[]` is not a mapping of options"),
        (
            {"pipeline": "clicks"},
            "source: `source` is missing; add it, such as `source: {topic: clicks.raw}`",
        ),
        (whole(sinks=1), "sinks: `sinks` is not known here; did you mean `sink`?"),
        (
            whole(zzz=1),
            "zzz: `zzz` is not known here; known are `pipeline`, `source`, `operators`, `sink`",
        ),
        (
            whole(deduplicate={"by": "key"}),
            "deduplicate: `deduplicate` is an operator; write it as an item of `operators`,",
        ),
        (whole(grace="30s"), "grace: `grace` is not known here; it is an option of `reorder` or"),
        (whole(output={}), "output: `output` is not known here; did you mean `sink`?"),
        (whole(**{"dead-letter": {}}), "`dead-letter` is not known here; did you mean `dead`?"),
        (
            whole(**{"bootstrap.servers": "a:1"}),
            "`bootstrap.servers` is a setting; put it into the variable HEADRACE_BOOTSTRAP_SERVERS",
        ),
        (
            whole(guarantee="at-least-once"),
            "guarantee: `guarantee` is a setting; put it into the variable HEADRACE_GUARANTEE",
        ),
        (
            whole(source={"topic": "a", "commit.interval.ms": 100}),
            "`commit.interval.ms` is a setting; put it into the variable HEADRACE_COMMIT_INTERVAL",
        ),
        (
            in_operator("reorder", grace="1s", **{"max-delay": "1m"}),
            "reorder.max-delay: `max-delay` is not known here; it is an option of `source`",
        ),
        (
            whole(source={"topic": "a", "on-failure": "stop"}),
            "it is an option of the pipeline itself",
        ),
        (
            {"query": "SELECT key FROM orders", "sink": {}},
            "this is the file of a Spark job; run it by `headrace spark`",
        ),
        (whole(source=None), "source: `null` is not a mapping of options; write `source:"),
        (whole(source={"topic": 5}), "source.topic: `5` is not text; if it is meant as text,"),
        (whole(source={"topic": None}), "source.topic: nothing stands here; write text,"),
        (
            whole(source={"topic": "a", "idle": None}),
            "source.idle: nothing stands here; write a duration, such as `10s`, or `never`",
        ),
        (whole(source={"topic": ["x"]}), 'source.topic: `["x"]` is not text; write one text in'),
        (whole(source={"topic": "a b"}), "source.topic: `a b` is not a topic name that Kafka"),
        (whole(source={"topic": ".."}), "source.topic: `..` is not a topic name that Kafka"),
        (whole(sink={"topic": "x" * 240}), "write at most 239 characters"),
        (whole(dead={"topic": "x" * 250}), "write at most 249 characters"),
        (whole(operators=[{"table": {"kind": "filter"}}]), "`kind` is not known in the options of"),
        (whole(pipeline="-"), "pipeline: `-` is not a name that Kafka accepts; write letters"),
        (whole(pipeline="x" * 81), "at most 80"),
        (whole(operators=[]), "operators: there is no operator; write at least one, such as"),
        (whole(operators="reorder"), "operators: `reorder` is not a list; write `operators: ["),
        (whole(operators={"reorder": {}}), 'operators: `{"reorder": {}}` is not a list; write'),
        (
            whole(operators=[{"reordr": {}}]),
            "operators[0]: `reordr` is not an operator; did",
        ),
        (
            whole(operators=[{"zzz": {}}]),
            "`zzz` is not an operator; write one of reorder,",
        ),
        (
            whole(operators=["table"]),
            "an operator is a mapping; write `table: {...}`",
        ),
        (whole(operators=[{"table": 3}]), "operators[0]: the options of `table` are a mapping;"),
        (
            whole(operators=[{"a": 1, "b": 2}]),
            "an operator is a mapping with one key",
        ),
        (
            whole(operators=[{"reorder": None, "grace": "30s"}]),
            "write its options below `reorder`, indented",
        ),
        (
            whole(operators=[{"reorder": {}, "sample": {}}]),
            "begin `sample` with a `-` of its own",
        ),
        (
            whole(operators=[{"type": "reorder", "grace": "30s"}]),
            "write `reorder: {...}` in place of `type: reorder`",
        ),
        (in_operator("reorder"), "operators[0].reorder.grace: `grace` is missing; add it, such as"),
        (
            in_operator("reorder", grace="-5s"),
            "reorder.grace: `-5s` is not a duration;",
        ),
        (in_operator("reorder", grace=None), "reorder.grace: `null` is not a duration;"),
        (in_operator("reorder", grace=-5), "`-5` is out of range; a duration is zero or more"),
        (
            in_operator("deduplicate", interval="10 minutes"),
            "operators[0].deduplicate.interval: `10 minutes` is not a duration; write a number and",
        ),
        (
            in_operator("deduplicate", interval="10m", by="id"),
            "operators[0].deduplicate: `by: id` needs an `id`, such as `id: value.event_id`",
        ),
        (
            in_operator("reorder", grace=1, late="keep"),
            "`keep` is none of the choices; write `forward`, `drop` or `topic`",
        ),
        (
            in_operator("reorder", grace=1, graze=1),
            "`graze` is not known here; did you mean `grace`",
        ),
        (
            in_operator("reorder", grace=1, buffer={"records": 1.5, "when-full": "spill"}),
            "operators[0].reorder.buffer.records: `1.5` is not a whole number; write one,",
        ),
        (
            in_operator("reorder", grace=1, buffer={"records": -1, "when-full": "spill"}),
            "operators[0].reorder.buffer.records: `-1` is less than 0; write more",
        ),
        (
            in_operator("reorder", grace=1, buffer={"bytes": "big", "when-full": "spill"}),
            "operators[0].reorder.buffer.bytes: `big` is not a size; write a number and a unit",
        ),
        (
            in_operator("reorder", grace=1, buffer={"records": 1}),
            "operators[0].reorder.buffer: a bound needs an answer; add `when-full:",
        ),
        (
            in_operator("aggregate", function="count", window={"size": "1h", "grace": 1}),
            "operators[0].aggregate.window: `kind` is missing; add it, such as `kind: tumbling`",
        ),
        (
            in_operator("aggregate", function="count", window={"kind": "daily"}),
            "operators[0].aggregate.window: `daily` is not a kind of window here; write one of",
        ),
        (
            in_operator(
                "aggregate", function="count", window={"kind": "tumbling", "size": 0, "grace": 0}
            ),
            "operators[0].aggregate.window.size: `0` is not more than 0; write more",
        ),
        (
            in_operator("aggregate", function="count", window="hourly"),
            "operators[0].aggregate.window: `hourly` is not a mapping of options; write `window: {",
        ),
        (
            in_operator("aggregate", function="avg"),
            "operators[0].aggregate.function: `avg` is not a function; write one of count, sum,",
        ),
        (
            in_operator("distinct", window={"kind": ["session"], "gap": 1, "grace": 1}),
            'operators[0].distinct.window: `["session"]` is not a kind of window here; write one',
        ),
        (
            whole(operators=[{"reorder": {"grace": 1}}] * 2),
            "operators[1].reorder: two operators are called `reorder`",
        ),
    ],
)
def test_each_mistake_has_its_sentence(document: object, expected: str) -> None:
    said = problems(document)
    assert any(expected in line for line in said), said


def test_the_longest_sink_leaves_room_for_what_is_named_after_it() -> None:
    spec = read_pipeline(whole(sink={"topic": "x" * 239}), "clicks.yaml", {})
    assert max(len(topic.name) for topic in spec.topics()) <= 249


def test_one_mistake_is_one_line() -> None:
    assert len(problems(whole(sink={"topick": "clicks.cleaned"}))) == 1
    assert len(problems(whole(operators=[{"reordr": {}}]))) == 1
    assert len(problems(whole(sink={"topic": "a b"}))) == 1


def test_python_names_are_not_for_files() -> None:
    (line,) = problems(in_operator("reorder", grace_ms=5))
    assert line.endswith("`grace_ms` is not known here; did you mean `grace`?")


def test_problems_stand_in_the_order_of_the_file() -> None:
    places: Places = {("sink",): (1, 1), ("source",): (2, 1), ("source", "topic"): (2, 10)}
    said = problems(whole(sink=1, source={"topic": 5}), places)
    assert [line.split(": ")[0] for line in said] == ["clicks.yaml:1:1", "clicks.yaml:2:10"]


def test_topics_of_one_name_are_told_beside_other_mistakes() -> None:
    document = {
        "pipeline": "clicks",
        "source": {"topic": "clicks"},
        "operators": [{"reorder": {"grace": "soon"}}],
        "sink": {"topic": "clicks"},
        "late": {"topic": "clicks.dead"},
        "on-failure": "no",
    }
    said = [line.split(": ", 2)[1:] for line in problems(document)]
    assert len(said) == 4
    assert said[0] == ["dead.topic", "`clicks.dead` is the late topic already; name another topic"]
    assert ["on-failure", "`no` is none of the choices; write `dead` or `stop`"] in said
    assert ["sink.topic", "`clicks` is the source already; name another topic"] in said
    document["sink"] = {"topic": "no topic!"}
    assert len(problems(document)) == 3
    assert "is the source already" not in "".join(problems(document))


def test_options_that_do_nothing_are_told_beside_other_mistakes() -> None:
    document = whole(
        operators=[
            *RIGHT_BUT_USELESS,
            {"deduplicate": {"interval": "soon"}},
        ]
    )
    said = problems(document)
    assert sorted(line.split(": ")[1] for line in said) == [
        "operators[0].reorder.idle",
        "operators[1].aggregate.late",
        "operators[2].deduplicate.interval",
    ]
    assert problems(whole(operators=[*RIGHT_BUT_USELESS])) == [
        line for line in said if "deduplicate" not in line
    ]


def test_a_problem_inside_a_window_has_its_place() -> None:
    window = {"kind": "tumbling", "size": "x", "grace": "1s"}
    path = ("operators", 0, "aggregate", "window", "size")
    (line,) = problems(in_operator("aggregate", function="count", window=window), {path: (7, 15)})
    assert line.startswith("clicks.yaml:7:15: operators[0].aggregate.window.size: `x` is not a")


def test_a_problem_of_a_whole_window_names_the_window_and_not_its_kind() -> None:
    window = {"kind": "hopping", "size": "1s", "advance": "2s", "grace": "1s"}
    (line,) = problems(in_operator("aggregate", function="count", window=window))
    assert ": operators[0].aggregate.window: `advance` is longer than `size`" in line


def required_and_mappings() -> Iterator[str]:
    """The options for which an example may be asked for."""
    for model in MODELS:
        for field in model.model_fields.values():
            if field.is_required():
                yield str(field.alias)
    yield from ("kind", "buffer", "late", "dead", "window")


def test_every_option_that_can_be_missing_has_an_example() -> None:
    assert set(required_and_mappings()) == set(EXAMPLES)


def test_a_wrong_value_is_shown_in_one_short_line() -> None:
    assert show("a\nb") == r'`"a\nb"`'
    assert len(show("x" * 1000)) <= 62
    assert show({"a": [1]}) == '`{"a": [1]}`'
