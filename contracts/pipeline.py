"""A whole pipeline as one object: the contents of `clicks.yaml`, and the same in Python.

    PipelineSpec(
        pipeline="clicks",
        source=Source(topic="clicks.raw"),
        operators=(ReorderPolicy(grace_ms=30_000),),
        sink=Sink(topic="clicks.cleaned"),
    )

An operator in YAML is a mapping with its kind as the only key, `reorder: {grace: 30s}`. An operator
and its store are named by what is written, never by the place in the list. So state keeps its owner
when somebody inserts an operator before it. `operators` holds the operators with names and stores
filled in, and with the window whose end a suppress waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WrapSerializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from headrace.contracts import advice
from headrace.contracts.hops import Hop, hops_of
from headrace.contracts.policies import OPERATOR_KINDS, AnyOperator, Name, OperatorPolicy, Policy
from headrace.contracts.selector_text import RECORD_TIMESTAMP, check_timestamp
from headrace.contracts.time import DurationMs, WaitMs
from headrace.contracts.topics import (
    TOPIC_CHARACTERS_MAX,
    TopicSpec,
    cleaned_topic,
    dead_topic,
    dead_topic_name,
    decisions_topic,
    late_topic,
    late_topic_name,
    progress_topic,
)
from headrace.contracts.topology import Problem, operator_problems, with_names, with_windows

TopicName = Annotated[
    str,
    Field(pattern=r"^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$"),
    Field(max_length=TOPIC_CHARACTERS_MAX),
]


TOPIC_ROLES = ("source", "sink", "late", "dead")
"""The topics that a file names, in the order in which they are compared."""
IDLE_MS = 10_000
"""The silence after which a partition is idle, unless the file says otherwise."""
_MAX_SKEW_MS = 60_000


def _idle_ms(written: dict[str, Any]) -> int | None:
    """Return no idle time where `max-delay` says by the clock how far a silent partition is."""
    return IDLE_MS if written.get("max_delay_ms") is None else None


class Source(Policy):
    """Where records come from."""

    topic: TopicName
    timestamp: Annotated[str, AfterValidator(check_timestamp)] = RECORD_TIMESTAMP
    """`record`, or where in the record the event time stands, such as `value.created_at`.

    Milliseconds since 1970 as a whole number (in a key or a header, its digits), or ISO 8601 text
    with an offset.
    """
    values: Literal["json", "registry"] = "json"
    """How selectors read values: as JSON, or by the registered schema whose number a value carries.

    With `registry`, a value is a zero byte, four bytes of the schema's number, and Avro, JSON or
    Protobuf, as the serializers of a schema registry write it.
    """
    max_future_ms: DurationMs | None = None
    """A record further ahead of the clock goes dead; without it any timestamp is believed."""
    max_delay_ms: DurationMs | None = None
    """A promise: a record comes at most so long after its own timestamp, by the clock.

    A partition that was read to its end is then as far as the clock less that.
    """
    idle_ms: WaitMs = Field(default_factory=_idle_ms)
    """A partition silent at its end for so long is idle: others do not wait for it; or `never`.

    10s if absent; `never` if absent where `max-delay` says how far a silent partition is.
    """
    max_skew_ms: DurationMs | None = None
    """Before a repartition, how far a partition may run ahead of the slowest by event time.

    If absent, the longest grace behind it, and at least a minute.
    """


class Topic(Policy):
    """Where late or dead records go."""

    topic: TopicName


class Sink(Policy):
    """Where cleaned records go."""

    topic: Annotated[TopicName, Field(max_length=TOPIC_CHARACTERS_MAX - len(".decisions"))]
    """The names of other topics begin with its name."""


def _read_operator(written: object) -> object:
    if isinstance(written, OperatorPolicy):
        return written
    if isinstance(written, str) and written in OPERATOR_KINDS:
        message = f"an operator is a mapping; write `{written}: {{...}}` with its options"
        raise ValueError(message)
    if not isinstance(written, dict) or len(written) != 1:
        message = "an operator is a mapping with one key, such as `reorder: {grace: 30s}`"
        raise ValueError(message + (_one_key(written) if isinstance(written, dict) else ""))
    ((kind, options),) = written.items()
    if kind not in OPERATOR_KINDS:
        near = get_close_matches(str(kind), OPERATOR_KINDS, n=1)
        guess = (
            f"did you mean `{near[0]}`?" if near else "write one of " + ", ".join(OPERATOR_KINDS)
        )
        message = f"`{kind}` is not an operator; {guess}"
        raise ValueError(message)
    if options is not None and not isinstance(options, dict):
        message = f"the options of `{kind}` are a mapping; write `{kind}: {{...}}`"
        raise ValueError(message)
    if options and "kind" in options:
        message = f"`kind` is not known in the options of `{kind}`; remove it"
        raise ValueError(message)
    return {**(options or {}), "kind": kind}


def _one_key(written: Mapping[Any, Any]) -> str:
    """Say how to mend an operator that has several keys, or none."""
    kinds = [key for key in written if key in OPERATOR_KINDS]
    if len(kinds) > 1:
        return f"; begin `{kinds[1]}` with a `-` of its own"
    if kinds:
        return f"; write its options below `{kinds[0]}`, indented"
    for key, value in written.items():
        if isinstance(value, str) and value in OPERATOR_KINDS:
            return f"; write `{value}: {{...}}` in place of `{key}: {value}`"
    return ""


def _write_operator(policy: object, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
    options: dict[str, Any] = write(policy)
    return {options.pop("kind"): options}


def _refuse(problems: Sequence[Problem], written: object) -> None:
    if problems:
        details = [
            InitErrorDetails(
                type=PydanticCustomError("refused", "{sentence}", {"sentence": problem.sentence}),
                loc=problem.path,
                input=written,
            )
            for problem in problems
        ]
        raise ValidationError.from_exception_data(PipelineSpec.__name__, details)


def _checked(operators: tuple[AnyOperator, ...]) -> tuple[AnyOperator, ...]:
    named = with_names(operators)
    _refuse(list(operator_problems(named)), operators)
    return with_windows(named)


Operator = Annotated[AnyOperator, BeforeValidator(_read_operator), WrapSerializer(_write_operator)]


def _beside(name: Callable[[str], str]) -> Callable[[dict[str, Any]], Topic]:
    return lambda written: Topic(topic=name(written["sink"].topic))


class PipelineSpec(Policy):
    """From a source topic through operators to a cleaned topic."""

    pipeline: Name
    """Names the consumer group, the state's folder and the internal topics."""
    source: Source
    operators: Annotated[tuple[Operator, ...], Field(min_length=1), AfterValidator(_checked)]
    """The steps that each record goes through, in this order."""
    sink: Sink
    late: Topic = Field(default_factory=_beside(late_topic_name))
    """Where operators with `late: topic` send late records; `<sink>.late` if absent."""
    dead: Topic = Field(default_factory=_beside(dead_topic_name))
    """Where records go that cannot be read; `<sink>.dead` if absent."""
    on_failure: Literal["dead", "stop"] = "dead"
    """How to go on when an operator, or a function of yours, fails on a record.

    `dead`: the record goes to the dead-letter topic, the rest goes on; `stop`: the sidecar ends.
    """

    @model_validator(mode="after")
    def _topics_apart(self) -> PipelineSpec:
        _refuse(list(self._topic_problems()), None)
        return self

    def topics(self) -> list[TopicSpec]:
        """Return every topic that the pipeline creates if it is missing."""
        return [
            cleaned_topic(self.sink.topic),
            progress_topic(self.sink.topic),
            *([late_topic(self.late.topic)] if self.sends_late() else []),
            dead_topic(self.dead.topic),
            *self._internal_topics(),
        ]

    def hops(self) -> tuple[Hop, ...]:
        """Return the pipeline's hops; one, unless an operator looks across partitions."""
        return hops_of(self.pipeline, self.source.topic, self.operators)

    def max_skew_ms(self) -> int:
        """Return how far a source partition may run ahead of the slowest."""
        if self.source.max_skew_ms is not None:
            return self.source.max_skew_ms
        graces_ms = [getattr(policy, "grace_ms", 0) for policy in self.operators]
        windows = [getattr(policy, "window", None) for policy in self.operators]
        graces_ms += [getattr(window, "grace_ms", 0) for window in windows]
        return max(_MAX_SKEW_MS, *graces_ms)

    def sends_late(self) -> bool:
        """Return whether any operator sends late records to the late topic."""
        return any(getattr(policy, "late", None) == "topic" for policy in self.operators)

    def warnings(self) -> list[str]:
        """Return warnings about a pipeline that works, but may not do what its author meant."""
        source = self.source
        return [
            *advice.warnings(self.operators, source.max_future_ms),
            *advice.about_quiet(source.idle_ms, source.max_delay_ms),
            *self._about_useless_options(),
        ]

    def _about_useless_options(self) -> Iterator[str]:
        """Warn of options that are right, and that the operators of this pipeline do not use."""
        if self.late.topic != late_topic_name(self.sink.topic) and not self.sends_late():
            yield (
                f"No operator sends a record to `{self.late.topic}`. Write `late: topic` into the"
                " operator whose late records shall go there, or remove `late` at the end."
            )
        if self.source.max_skew_ms is not None and len(self.hops()) == 1:
            yield (
                "`max-skew` holds partitions back before a `deduplicate: {by: id}` alone, and none"
                " is here. Remove it."
            )

    def _internal_topics(self) -> Iterator[TopicSpec]:
        for hop in self.hops():
            yield hop.changelog
            if hop.end is not None:
                yield hop.end.topic

    def _topic_problems(self) -> Iterator[Problem]:
        names = {role: getattr(self, role).topic for role in TOPIC_ROLES}
        yield from topic_problems(names)
        owners = _owners(names)
        beside = progress_topic(self.sink.topic), decisions_topic(self.sink.topic)
        for topic_spec in (*beside, *self._internal_topics()):
            problem = _taken(topic_spec.name, owners)
            if problem is not None:
                sentence = (
                    f"`{topic_spec.name}` would be a {topic_spec.role} topic that headrace makes,"
                    f" and {problem}; choose other names"
                )
                yield Problem((), sentence)
            owners.setdefault(topic_spec.name, f"a {topic_spec.role} topic")


def topic_problems(names: Mapping[str, str]) -> Iterator[Problem]:
    """Yield which of a pipeline's own topics has the name of an earlier one.

    The names stand by their roles, in the order of `TOPIC_ROLES`.
    """
    roles = list(names)
    for place, role in enumerate(roles):
        problem = _taken(names[role], _owners({one: names[one] for one in roles[:place]}))
        if problem is not None:
            yield Problem((role, "topic"), f"`{names[role]}` {problem}; name another topic")


def _owners(names: Mapping[str, str]) -> dict[str, str]:
    """Return, by name, which topic has it; of several the first."""
    owners: dict[str, str] = {}
    for role, name in names.items():
        owners.setdefault(name, "the source" if role == "source" else f"the {role} topic")
    return owners


def _taken(name: str, owners: Mapping[str, str]) -> str | None:
    """Say why the name is taken. Brokers' metrics do not tell dots and underscores apart."""
    if name in owners:
        return f"is {owners[name]} already"
    for other, owner in owners.items():
        if other.replace(".", "_") == name.replace(".", "_"):
            return f"differs from {owner}, `{other}`, in dots and underscores alone"
    return None
