"""A pipeline in Python is the one of its file, and says what a file would be told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import HeadraceError, Pipeline, PipelineSpec, options
from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.pipeline import Sink, Source, Topic
from headrace.contracts.pipeline_text import read_pipeline
from headrace.contracts.pipeline_yaml import write_pipeline
from headrace.contracts.policies import (
    OPERATOR_KINDS,
    WINDOW_KINDS,
    AnyOperator,
    BufferPolicy,
    Policy,
    read_operator,
)
from headrace.contracts.topology import operator_problems, with_names
from headrace.contracts.yaml_text import parse_yaml
from headrace.services.cli.pipeline_file import FORM, load_pipeline
from headrace.services.cli.plan import plan
from tests.properties.strategies import buffers, durations_ms, windows
from tests.testing.functions import Longest, is_wanted

CLICKS = """\
pipeline: clicks
source: {topic: clicks.raw, max-future: 1h, idle: never}
operators:
- reorder: {grace: 30s}
- deduplicate: {by: key+id, id: value.event_id, interval: 10m}
- aggregate:
    function: count
    window: {kind: tumbling, size: 1h, grace: 0ms}
- suppress:
    until: window-closes
    buffer: {records: 3, when-full: spill}
sink: {topic: clicks.cleaned}
late: {topic: too.late}
on-failure: stop
"""


def clicks() -> Pipeline:
    return (
        Pipeline("clicks")
        .source("clicks.raw", max_future="1h", idle="never")
        .reorder(grace="30s")
        .deduplicate(by="key+id", id="value.event_id", interval="10m")
        .aggregate(function="count", window={"kind": "tumbling", "size": 3_600_000, "grace": 0})
        .suppress(until="window-closes", buffer={"records": 3, "when_full": "spill"})
        .to("clicks.cleaned", late="too.late", on_failure="stop")
    )


def read(text: str) -> PipelineSpec:
    return read_pipeline(*_parsed(text))


def _parsed(text: str) -> tuple[object, str, Any]:
    document, places = parse_yaml(text, "clicks.yaml", FORM)
    return document, "clicks.yaml", places


def test_it_is_the_pipeline_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(CLICKS)
    assert clicks().spec == load_pipeline(file)
    assert clicks().yaml() == CLICKS


def test_its_file_leaves_out_what_holds_anyway() -> None:
    begun = Pipeline("clicks").source("clicks.raw").table()
    assert begun.to("clicks.cleaned").yaml().splitlines()[1] == "source: {topic: clicks.raw}"


def test_it_is_a_value() -> None:
    begun = Pipeline("clicks").source("clicks.raw")
    assert begun.table().to("one") != begun.table().to("other")
    assert {clicks(), clicks()} == {clicks()}
    assert begun == Pipeline("clicks").source("clicks.raw")


NAMES = st.one_of(st.none(), st.sampled_from(("one", "1.5e3", "no", "0x1", "7")))
LATE = st.sampled_from(("forward", "drop", "topic"))
ASIDE = st.sampled_from(("drop", "topic"))
MAYBE_MS = st.one_of(st.none(), durations_ms)
FUNCTIONS = st.sampled_from((("count", None), ("sum", "value.n"), ("a:b", None)))


def _any_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options of an operator, by name."""
    named = {"kind": st.just(kind), "name": NAMES, "store": NAMES}
    match kind:
        case "reorder":
            options = {
                "grace_ms": durations_ms,
                "late": LATE,
                "buffer": buffers("spill", "emit-early", "shut-down"),
                "idle_ms": MAYBE_MS,
            }
        case "deduplicate":
            by = st.sampled_from((("key", None), ("key+id", "header.1: x"), ("id", "value.#1")))
            options = {"by_id": by, "interval_ms": durations_ms, "late": LATE}
        case "distinct":
            options = {"window": windows("tumbling", "session"), "late": ASIDE}
        case "filter":
            options = {"where": st.sampled_from(('header.x == "\u00e9: {"', "key == null", "a:b"))}
        case "sample":
            options = {"every": st.integers(2, 100)}
        case "aggregate":
            window = windows("hopping", "sliding", "session", "tumbling", "unlimited")
            options = {"function_of": FUNCTIONS, "window": window, "late": ASIDE}
        case "suppress":
            until = st.sampled_from((("time-limit", 5_000), ("window-closes", None)))
            window = st.one_of(st.none(), windows("tumbling", "session"))
            buffer = buffers("spill", "shut-down")
            options = {"until_limit_ms": until, "window": window, "buffer": buffer}
        case _:
            options = {}
    return st.fixed_dictionaries(named | options)


_TOGETHER = {
    "by_id": ("by", "id"),
    "function_of": ("function", "of"),
    "until_limit_ms": ("until", "limit_ms"),
}


def _policy(options: dict[str, Any]) -> AnyOperator:
    for both, names in _TOGETHER.items():
        if both in options:
            options |= dict(zip(names, options.pop(both), strict=True))
    return read_operator(options)


operators = st.sampled_from(sorted(OPERATOR_KINDS)).flatmap(_any_of).map(_policy)


@st.composite
def specs(draw: st.DrawFn) -> PipelineSpec:
    chosen = draw(
        st.lists(operators, min_size=1, max_size=4).filter(
            lambda all_: not list(operator_problems(with_names(all_)))
        )
    )
    topic = draw(st.sampled_from(("clicks.raw", "1.5e3", "1_000", "true")))
    source = Source(
        topic=topic,
        timestamp=draw(st.sampled_from(("record", "value.at"))),
        idle_ms=draw(st.one_of(st.none(), durations_ms)),
        max_future_ms=draw(st.one_of(st.none(), durations_ms)),
    )
    asides = {"late": Topic(topic="1.5")} if draw(st.booleans()) else {}
    return PipelineSpec(
        pipeline=draw(st.sampled_from(("clicks", "007", "no"))),
        source=source,
        operators=tuple(chosen),
        sink=Sink(topic="clicks.cleaned"),
        on_failure=draw(st.sampled_from(("dead", "stop"))),
        **asides,
    )


@given(specs())
def test_a_written_pipeline_reads_back_equal(spec: PipelineSpec) -> None:
    written = write_pipeline(spec)
    assert read(written) == spec
    assert write_pipeline(read(written)) == written


def test_every_option_of_a_file_has_its_type() -> None:
    typed: dict[str, type[Policy]] = {
        "SourceOptions": Source,
        "Buffer": BufferPolicy,
        **{f"{kind.title()}Options": policy for kind, policy in OPERATOR_KINDS.items()},
    }
    for name, policy in typed.items():
        assert set(get_type_hints(getattr(options, name))) == _options(policy) - _given(policy), (
            name
        )
    all_of_windows = set().union(*map(_options, WINDOW_KINDS.values()))
    assert set(get_type_hints(options.Window)) == all_of_windows


def _options(policy: type[Policy]) -> set[str]:
    return {str(field.alias).replace("-", "_") for field in policy.model_fields.values()}


def _given(policy: type[Policy]) -> set[str]:
    return {"topic"} if policy is Source else {"kind"}


def test_functions_are_called_by_their_names() -> None:
    begun = Pipeline("clicks").source("clicks.raw").filter(where=is_wanted)
    whole = begun.aggregate(function=Longest).to("clicks.cleaned")
    where, function = "tests.testing.functions:is_wanted", "tests.testing.functions:Longest"
    again = begun.aggregate(function=function).to("clicks.cleaned")
    assert whole == again
    assert whole.checked() == whole.spec
    assert yaml.safe_load(whole.yaml())["operators"] == [
        {"filter": {"where": where}},
        {"aggregate": {"function": function}},
    ]


def _inner() -> Callable[[object], bool]:
    def inside(_: object) -> bool:
        return True

    return inside


def elsewhere(_: object) -> bool:
    raise AssertionError


elsewhere.__module__ = is_wanted.__module__


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda begun: begun.reorder(grace="30 seconds"),
            (
                ".reorder(grace): `30 seconds` is not a duration; write a number and a unit, "
                "such as 500ms, 30s, 10m, 1h30m or 7d"
            ),
        ),
        (
            lambda begun: begun.reorder(gruce="30s"),
            ".reorder(gruce): `gruce` is not known here; did you mean `grace`?",
        ),
        (
            lambda begun: begun.table().reorder(kind="x", grace="30s"),
            ".reorder: `kind` is not known in the options of `reorder`; remove it",
        ),
        (
            lambda begun: begun.reorder(grace=1, buffer={"records": 1, "when_ful": "spill"}),
            ".reorder(buffer.when_ful): `when-ful` is not known here; did you mean `when-full`?",
        ),
        (
            lambda begun: begun.distinct(window={"kind": "session", "gap": "x", "grace": 0}),
            (
                ".distinct(window.gap): `x` is not a duration; write a number and a unit, "
                "such as 500ms, 30s, 10m, 1h30m or 7d"
            ),
        ),
        (
            lambda begun: begun.table().table(),
            (
                ".table: two operators are called `table`, and state is found by name; give "
                "one of them another, such as `name: table-again`"
            ),
        ),
        (
            lambda begun: begun.table().to("clicks.raw"),
            ".to(topic): `clicks.raw` is the source already; name another topic",
        ),
        (
            lambda begun: begun.table().to("clicks.raw", on_failure="dead-letter"),
            (
                ".to(on_failure): `dead-letter` is none of the choices; write `dead` or `stop`\n"
                'Pipeline("clicks").to(topic): `clicks.raw` is the source already; name another'
                " topic"
            ),
        ),
        (
            lambda begun: begun.aggregate(function=Longest, of="value.x"),
            (
                ".aggregate(of): `tests.testing.functions:Longest` is given the whole record, and"
                " not what `of` selects; remove `of`, and let the function select"
            ),
        ),
        (
            lambda begun: begun.table().to("b").table(),
            ".table: it stands behind `to`, which ends a pipeline",
        ),
        (
            lambda begun: begun.table().plan(),
            ': it has no end; write `.to("clicks.cleaned")` behind it',
        ),
        (
            lambda begun: begun.filter(where="headrace:nothing").to("b").plan(),
            (
                ".filter(where): `headrace:nothing`: module `headrace` has no `nothing`; "
                "check the spelling"
            ),
        ),
        (
            lambda begun: begun.filter(where=lambda _: True),
            (
                ".filter(where): a lambda has no name that a sidecar could import; write a "
                "function in a module, and pass that"
            ),
        ),
        (
            lambda begun: begun.filter(where=_inner()),
            (
                ".filter(where): `inside` stands inside of a function, where a sidecar "
                "cannot import it; move it to the top of its module"
            ),
        ),
        (
            lambda begun: begun.filter(where=elsewhere),
            (
                ".filter(where): `tests.testing.functions:elsewhere` names something else; "
                "pass what stands at the top of a module under its own name"
            ),
        ),
        (
            lambda _: Pipeline("clicks").source("clicks.raw", **cast("Any", {"idle": None})),
            ".source(idle): nothing stands here; write a duration, such as `10s`, or `never`",
        ),
        (
            lambda begun: begun.source("views.raw"),
            ".source: it reads `clicks.raw` already; write a pipeline for each source",
        ),
        (
            lambda begun: begun.to("b"),
            '.to: no operator stands before it; put one there, such as `.reorder(grace="30s")`',
        ),
        (
            lambda _: Pipeline("clicks").table().to("b"),
            '.to: it has no source; put one in front, such as `.source("clicks.raw")`',
        ),
        (
            lambda begun: begun.reorder(grace=timedelta(seconds=30)),
            '.reorder(grace): `0:00:30` is a timedelta; write the duration as text, such as "30s"',
        ),
        (
            lambda begun: begun.filter(where=functools.partial(is_wanted)),
            (
                ".filter(where): `partial` is an object without a name; pass a function or a "
                "class of a module, or name it `module:name`"
            ),
        ),
    ],
)
def test_mistakes_are_said_where_they_stand(make: Callable[[Any], object], sentence: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        make(Pipeline("clicks").source("clicks.raw"))
    assert str(refused.value) == f'Pipeline("clicks"){sentence}'
    assert isinstance(refused.value, PipelineInvalid)
    assert refused.value.exit_code == 2


def test_an_editor_is_offered_every_public_name() -> None:
    assert {*headrace.__all__} <= {*dir(headrace)}


def test_the_plan_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "clicks.yaml"
    file.write_text(CLICKS)
    clicks().plan(records_per_second=100)
    printed = capsys.readouterr().out
    plan(file, records_per_second=100)
    assert printed == capsys.readouterr().out
