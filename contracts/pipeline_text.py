"""Describe the errors in a pipeline file, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.pipeline import (
    TOPIC_ROLES,
    Operator,
    PipelineSpec,
    Sink,
    Source,
    Topic,
    topic_problems,
)
from headrace.contracts.policies import (
    OPERATOR_KINDS,
    WINDOW_KINDS,
    AnyOperator,
    BufferPolicy,
    Policy,
)
from headrace.contracts.problem_text import (
    Path,
    Places,
    meant,
    place_of,
    problem_line,
    sentence_of,
    show,
    together,
)
from headrace.contracts.topics import dead_topic_name, late_topic_name
from headrace.contracts.topology import without_effect

OPERATOR: TypeAdapter[AnyOperator] = TypeAdapter(Operator)
"""Reads an operator as a file has it."""

EXAMPLES = {
    "advance": "advance: 10m",
    "buffer": "buffer: {records: 1000, when-full: spill}",
    "dead": "dead: {topic: clicks.dead}",
    "difference": "difference: 5m",
    "every": "every: 10",
    "function": "function: count",
    "gap": "gap: 30m",
    "grace": "grace: 30s",
    "interval": "interval: 10m",
    "kind": "kind: tumbling",
    "late": "late: {topic: clicks.late}",
    "operators": "operators: [{reorder: {grace: 30s}}]",
    "pipeline": "pipeline: clicks",
    "sink": "sink: {topic: clicks.cleaned}",
    "size": "size: 1h",
    "source": "source: {topic: clicks.raw}",
    "topic": "topic: clicks.raw",
    "until": "until: window-closes",
    "where": "where: value.amount >= 3",
    "window": "window: {kind: tumbling, size: 1h, grace: 10m}",
}
"""One example for every required option, and for every option that is a mapping."""

_MAPPINGS: Mapping[str, type[Policy]] = {
    "source": Source,
    "sink": Sink,
    "late": Topic,
    "dead": Topic,
    "buffer": BufferPolicy,
    **OPERATOR_KINDS,
    **WINDOW_KINDS,
}
_NAMED_AFTER_SINK = {"late": late_topic_name, "dead": dead_topic_name}
_OF_A_JOB = {"job", "query"}
SETTINGS: Mapping[str, str] = {
    **dict.fromkeys(("servers", "brokers", "bootstrap_servers"), "HEADRACE_BOOTSTRAP_SERVERS"),
    **dict.fromkeys(("guarantee", "processing_guarantee"), "HEADRACE_GUARANTEE"),
    **dict.fromkeys(("state_folder", "state_dir"), "HEADRACE_STATE_FOLDER"),
    **dict.fromkeys(("standbys", "num_standby_replicas"), "HEADRACE_STANDBYS"),
    **dict.fromkeys(("commit_interval", "commit_interval_ms"), "HEADRACE_COMMIT_INTERVAL"),
    "memory": "HEADRACE_MEMORY",
    "replication_factor": "HEADRACE_REPLICATION_FACTOR",
    "schema_registry_url": "HEADRACE_SCHEMA_REGISTRY_URL",
    "decisions": "HEADRACE_DECISIONS",
}
"""The variables of settings that people look for among the options of a pipeline.

The names are ours and Kafka's; in a file they may have `-` or `.` in place of `_`.
"""


def read_pipeline(document: object, file: str, places: Places) -> PipelineSpec:
    """Return the pipeline that a document describes.

    Raises PipelineInvalid with a line for each problem.
    """
    if isinstance(document, dict) and "pipeline" not in document and document.keys() & _OF_A_JOB:
        sentence = "this is the file of a Spark job; run it by `headrace spark`"
        raise PipelineInvalid(problem_line((), sentence, file, places))
    if isinstance(document, dict) and not document.keys() & PipelineSpec.model_fields.keys():
        sentence = f"none of this is of a pipeline; begin it with `{EXAMPLES['pipeline']}`"
        raise PipelineInvalid(problem_line((), sentence, file, places))
    try:
        spec = PipelineSpec.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise PipelineInvalid(together(sentences(found, document, file, places))) from error
    if lines := sentences([], document, file, places):
        raise PipelineInvalid(together(lines))
    return spec


def sentences(
    found: Sequence[ErrorDetails], document: object, file: str, places: Places
) -> list[str]:
    """Return one line for each problem of a document, in the order of the file."""
    lines = [
        (place_of(path, places), problem_line(path, sentence, file, places))
        for path, sentence in problems(found, document)
    ]
    return [line for _, line in sorted(lines)]


def problems(found: Sequence[ErrorDetails], document: object) -> list[tuple[Path, str]]:
    """Return the place of each problem that pydantic found in a document, and a sentence for it."""
    misspelt = {
        meant(details["loc"], _known(details), _elsewhere(details["loc"]))
        for details in found
        if details["type"] == "extra_forbidden"
    }
    said: list[tuple[Path, str]] = [
        (_written_path(details["loc"], document), _sentence(details))
        for details in found
        if not (details["type"] == "missing" and details["loc"] in misspelt)
        and not _follows_from_another(details)
    ]
    return [
        *said,
        *_unsaid(document),
        *_useless_options(found, document),
        *_topic_problems(found, document),
    ]


def _unsaid(document: object) -> Iterator[tuple[Path, str]]:
    """Yield an `idle` of the source that says nothing: a default stands for it, and not `never`."""
    source = document.get("source") if isinstance(document, dict) else None
    if isinstance(source, dict) and source.get("idle", "never") is None:
        sentence = "nothing stands here; write a duration, such as `10s`, or `never`"
        yield ("source", "idle"), sentence


def _useless_options(found: Sequence[ErrorDetails], document: object) -> Iterator[tuple[Path, str]]:
    """Yield options that do nothing. Pydantic finds them only once every operator is right."""
    were_checked = any(
        details["type"] == "refused" and details["loc"][:1] == ("operators",) for details in found
    )
    operators = document.get("operators") if isinstance(document, dict) else None
    if were_checked or not isinstance(operators, list):
        return
    for index, written in enumerate(operators):
        try:
            policy = OPERATOR.validate_python(written, by_alias=True, by_name=False)
        except ValidationError:
            # Its own problems are among those that were found.
            continue
        for option, sentence in without_effect(policy):
            yield ("operators", index, policy.kind, option), sentence


def _topic_problems(found: Sequence[ErrorDetails], document: object) -> Iterator[tuple[Path, str]]:
    """Yield topics that have one name. Pydantic compares them only once nothing else is wrong."""
    are_compared = any(
        details["type"] == "refused" and details["loc"][:1] != ("operators",) for details in found
    )
    if are_compared or not isinstance(document, dict):
        return
    wrong = {details["loc"] for details in found}
    names: dict[str, str] = {}
    for role in TOPIC_ROLES:
        topic = document.get(role)
        name = topic.get("topic") if isinstance(topic, dict) else getattr(topic, "topic", None)
        if role in _NAMED_AFTER_SINK and role not in document and "sink" in names:
            name = _NAMED_AFTER_SINK[role](names["sink"])
        if isinstance(name, str) and (role, "topic") not in wrong:
            names[role] = name
    yield from topic_problems(names)


def _follows_from_another(details: ErrorDetails) -> bool:
    # The late and dead topics are named after the sink, and a list whose items are all wrong
    # counts as empty.
    empty = details["type"] == "too_short" and bool(details["input"])
    return empty or details["type"] == "default_factory_not_called"


def _written_path(location: Path, document: object) -> Path:
    """Return pydantic's path without the kinds of windows, which the file has in another place."""
    path: list[int | str] = []
    found = document
    for step in location:
        if isinstance(found, dict) and step not in found and found.get("kind") == step:
            continue
        path.append(step)
        found = _step_into(found, step)
    return tuple(path)


def _step_into(found: object, step: int | str) -> object:
    if isinstance(found, dict):
        return found.get(step)
    if isinstance(found, list) and isinstance(step, int) and step < len(found):
        return found[step]
    return None


def _sentence(details: ErrorDetails) -> str:
    match details["type"]:
        case "too_short":
            return f"there is no operator; write at least one, such as `{EXAMPLES['operators']}`"
        case "union_tag_invalid":
            kinds = details["ctx"]["expected_tags"].replace("'", "`")
            tag = show(details["input"]["kind"])
            return f"{tag} is not a kind of window here; write one of {kinds}"
        case "union_tag_not_found":
            return f"`kind` is missing; add it, such as `{EXAMPLES['kind']}`"
        case _:
            pass
    is_unknown = details["type"] == "extra_forbidden"
    name = details["loc"][-1] if details["loc"] else ""
    if is_unknown and name in OPERATOR_KINDS:
        return f"`{name}` is an operator; write it as an item of `operators`, `- {name}: {{...}}`"
    variable = SETTINGS.get(str(name).replace("-", "_").replace(".", "_"))
    if is_unknown and variable is not None:
        return f"`{name}` is a setting; put it into the variable {variable}"
    known = _known(details) if is_unknown else []
    sentence = sentence_of(details, known, EXAMPLES, _elsewhere(details["loc"]))
    return sentence or f"{show(details['input'])} cannot stand here"


def _known(details: ErrorDetails) -> list[str]:
    *parents, _ = details["loc"]
    owner = _MAPPINGS[str(parents[-1])] if parents else PipelineSpec
    kind = ["kind"] if owner in WINDOW_KINDS.values() else []
    return kind + [str(field.alias) for key, field in owner.model_fields.items() if key != "kind"]


def _elsewhere(path: Path) -> list[str]:
    """Return the mappings that have the option at the end of a path."""
    if not path:
        return []
    name = path[-1]
    owners = [
        "`window`" if owner in WINDOW_KINDS else f"`{owner}`"
        for owner, model in _MAPPINGS.items()
        if any(field.alias == name for key, field in model.model_fields.items() if key != "kind")
    ]
    if any(field.alias == name for field in PipelineSpec.model_fields.values()):
        owners.append("the pipeline itself")
    return list(dict.fromkeys(owners))
