"""What is wrong with a pipeline file, in sentences: what, where, and what to write instead.

    clicks.yaml:7:7: operators[1].deduplicate.interval: `10 minutes` is not a duration; write ...

Each problem is one line. Positions come from whoever read the file; this module knows no YAML.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import PipelineInvalid
from contracts.pipeline import PipelineSpec, Sink, Source, Topic
from contracts.policies import OPERATOR_KINDS, WINDOW_KINDS, BufferPolicy, Policy

Path = tuple[int | str, ...]
Places = Mapping[Path, tuple[int, int]]
"""Line and column, counted from 1, of every key and item of a document."""

EXAMPLES = {
    "advance": "advance: 10m",
    "buffer": "buffer: {records: 1000, when-full: spill}",
    "dead": "dead: {topic: clicks.dead}",
    "difference": "difference: 5m",
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
"""One for every option that cannot be left out, and for every one that is a mapping."""

_MAPPINGS: Mapping[str, type[Policy]] = {
    "source": Source,
    "sink": Sink,
    "late": Topic,
    "dead": Topic,
    "buffer": BufferPolicy,
    **OPERATOR_KINDS,
    **WINDOW_KINDS,
}
_SHOWN_CHARACTERS_MAX = 60


def read_pipeline(document: object, file: str, places: Places) -> PipelineSpec:
    """The pipeline that a document describes, or PipelineInvalid with a line for each problem."""
    try:
        return PipelineSpec.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise PipelineInvalid("\n".join(sentences(error, document, file, places))) from error


def sentences(error: ValidationError, document: object, file: str, places: Places) -> list[str]:
    """One line for each problem that pydantic found, in the order of the file."""
    lines = []
    found = error.errors(include_url=False)
    misspelt = {_meant(details) for details in found if details["type"] == "extra_forbidden"}
    for details in found:
        missing = details["type"] == "missing" and details["loc"] in misspelt
        if missing or _follows_from_another(details):
            continue
        path = _written_path(details["loc"], document)
        lines.append((_place(path, places), problem_line(path, _sentence(details), file, places)))
    return [line for _, line in sorted(lines)]


def problem_line(path: Path, sentence: str, file: str, places: Places) -> str:
    """One problem with its place, as editors and compilers write it."""
    line, column = _place(path, places)
    label = _label(path)
    return ": ".join([f"{file}:{line}:{column}", *([label] if label else []), sentence])


def _follows_from_another(details: ErrorDetails) -> bool:
    # The late and dead topics are named after the sink, and a list whose items are all wrong
    # counts as empty.
    empty = details["type"] == "too_short" and bool(details["input"])
    return empty or details["type"] == "default_factory_not_called"


def _written_path(location: Path, document: object) -> Path:
    """Pydantic's path without the kinds of windows, which the file says in another place."""
    path: list[int | str] = []
    found = document
    for index, step in enumerate(location):
        inner = index + 1 < len(location)
        if inner and isinstance(found, dict) and step not in found and found.get("kind") == step:
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


def _place(path: Path, places: Places) -> tuple[int, int]:
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return (1, 1)


def _label(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _sentence(details: ErrorDetails) -> str:
    write = _SENTENCES.get(details["type"])
    if write is None:
        return f"{show(details['input'])} cannot stand here"
    return write(details)


def show(written: object) -> str:
    """What the user wrote, in one short line."""
    text = written if isinstance(written, str) else json.dumps(written, default=str)
    text = text if text.isprintable() else json.dumps(text)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
    return f"`{text}`"


def _missing(details: ErrorDetails) -> str:
    name = str(details["loc"][-1])
    return f"`{name}` is missing; add it, such as `{EXAMPLES[name]}`"


def _unknown(details: ErrorDetails) -> str:
    return unknown(details["loc"], _known(details))


def _meant(details: ErrorDetails) -> Path:
    return meant(details["loc"], _known(details))


def unknown(path: Path, known: list[str]) -> str:
    """What is said of an option that is none of those which are known in its place."""
    if not known:
        return f"`{path[-1]}` is not known here; remove it"
    near = meant(path, known)
    if near:
        return f"`{path[-1]}` is not known here; did you mean `{near[-1]}`?"
    return f"`{path[-1]}` is not known here; known are {_listed(known)}"


def meant(path: Path, known: list[str]) -> Path:
    """The path of the option that a misspelt one is nearest to, empty where none is near."""
    *parents, name = path
    near = get_close_matches(str(name), known, n=1)
    return (*parents, *near) if near else ()


def _known(details: ErrorDetails) -> list[str]:
    *parents, _ = details["loc"]
    owner = _MAPPINGS[str(parents[-1])] if parents else PipelineSpec
    kind = ["kind"] if owner in WINDOW_KINDS.values() else []
    return kind + [str(field.alias) for key, field in owner.model_fields.items() if key != "kind"]


def _choice(details: ErrorDetails) -> str:
    expected = details["ctx"]["expected"].replace("'", "`")
    return f"{show(details['input'])} is none of the choices; write {expected}"


def _window_kind(details: ErrorDetails) -> str:
    kinds = details["ctx"]["expected_tags"].replace("'", "`")
    return f"{show(details['ctx']['tag'])} is not a kind of window here; write one of {kinds}"


def _window_without_kind(_details: ErrorDetails) -> str:
    return f"`kind` is missing; add it, such as `{EXAMPLES['kind']}`"


def _not_mapping(details: ErrorDetails) -> str:
    name = str(details["loc"][-1]) if details["loc"] else ""
    example = f"; write `{EXAMPLES[name]}`" if name in EXAMPLES else ""
    return f"{show(details['input'])} is not a mapping of options{example}"


def _not_text(details: ErrorDetails) -> str:
    if details["input"] is None:
        return "nothing stands here; write text, or remove the line"
    if isinstance(details["input"], list | dict):
        return f"{show(details['input'])} is not text"
    return f"{show(details['input'])} is not text; if it is meant as text, write it in quotes"


def _not_name(details: ErrorDetails) -> str:
    return (
        f"{show(details['input'])} is not a name that Kafka accepts;"
        " write letters, digits, `.`, `_` and `-`, at most 80, beginning with a letter or digit"
        if details["loc"][-1] != "topic"
        else f"{show(details['input'])} is not a topic name that Kafka accepts;"
        " write letters, digits, `.`, `_` and `-`"
    )


def _too_long(details: ErrorDetails) -> str:
    characters_max = details["ctx"]["max_length"]
    return f"{show(details['input'])} is too long; write at most {characters_max} characters"


def _not_list(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not a list; write `{EXAMPLES['operators']}`"


def _no_operator(_details: ErrorDetails) -> str:
    return f"there is no operator; write at least one, such as `{EXAMPLES['operators']}`"


def _not_more(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not more than {details['ctx']['gt']}; write more"


def _too_small(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is less than {details['ctx']['ge']}; write more"


def _not_number(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not a whole number; write one, such as 1000"


def _own_words(details: ErrorDetails) -> str:
    # A Python object is nothing that stands in a file, and a long text is nothing for one line.
    return str(details["ctx"]["error"]).replace(f"`{details['input']}`", show(details["input"]))


def _refused(details: ErrorDetails) -> str:
    return details["msg"]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_SENTENCES: dict[str, Callable[[Any], str]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "literal_error": _choice,
    "union_tag_invalid": _window_kind,
    "union_tag_not_found": _window_without_kind,
    "model_type": _not_mapping,
    "model_attributes_type": _not_mapping,
    "dict_type": _not_mapping,
    "string_type": _not_text,
    "string_pattern_mismatch": _not_name,
    "string_too_long": _too_long,
    "tuple_type": _not_list,
    "too_short": _no_operator,
    "greater_than": _not_more,
    "greater_than_equal": _too_small,
    "int_type": _not_number,
    "int_parsing": _not_number,
    "int_from_float": _not_number,
    "int_parsing_size": _not_number,
    "value_error": _own_words,
    "refused": _refused,
}
